//! How a bucket is reached: custom certificates and credentials, an endpoint without a server, deadlines, and messages
//! meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::proxy::{Fault, Proxy, Schedule, Slowness, Tls};
use support::servers::{BUCKET, Server, fresh_prefix};
use support::{Finished, assert_same_tree, environment, trees};

use crate::bucket::{Bucket, good};

fn finished(mut command: Command) -> Finished {
    command.output().unwrap().into()
}

#[test]
fn an_authority_of_ones_own_is_trusted_where_it_is_named_and_nowhere_else() {
    let moto = Server::moto();
    let tls = Tls::new(&moto.endpoint);
    let server = Server {
        endpoint: tls.endpoint(),
        ..moto
    };
    let bucket = Bucket::without_store("tls", server);
    let mut command = bucket.command(["init"]);
    // With this deadline, retries would outlast the test.
    command.env("STORE_DEADLINE", "1h");
    let refused = finished(command);
    assert_eq!(refused.code, Some(1), "{refused}");
    for words in [
        &format!(
            "no connection to {}: invalid peer certificate: ",
            tls.endpoint()
        ),
        "hint: name a file with the certificate of its authority in AWS_CA_BUNDLE, SSL_CERT_FILE or `ca-bundle`",
    ] {
        assert!(refused.stderr.contains(words), "{refused}");
    }
    let tree = bucket.env.path("tree");
    trees::version(&tree, 3, 1, 200_000);
    let with = |variable: &str, words: &[&str]| {
        let mut command = bucket.command(words.iter().copied());
        command.env(variable, tls.authority());
        command
    };
    good(with("AWS_CA_BUNDLE", &["init"]));
    good(with("AWS_CA_BUNDLE", &["put", "tree", "project/a/b"]));
    good(with("SSL_CERT_FILE", &["get", "project/a/b", "out"]));
    assert_same_tree(&tree, &bucket.env.path("out"));
    let profile = format!(
        "[profile.own]\nfrom-environment = true\nca-bundle = {:?}\n",
        tls.authority()
    );
    bucket.env.write("home/.config/store/config.toml", profile);
    bucket.ok(["--store-profile", "own", "verify", "--read-data"]);
    let no_pem = bucket.env.write("no-pem", "text");
    let mut command = with("AWS_CA_BUNDLE", &["verify"]);
    command.env("AWS_CA_BUNDLE", &no_pem);
    let refused = finished(command);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused
            .stderr
            .contains("the file of certificates holds none"),
        "{refused}"
    );
}

#[test]
fn a_wrong_endpoint_is_found_out_long_before_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = Server {
        endpoint: endpoint.clone(),
        ..Server::moto()
    };
    let bucket = Bucket::without_store("nobody", server);
    let mut command = bucket.command(["ls"]);
    command.env("STORE_DEADLINE", "1h");
    let told = finished(command);
    assert_eq!(told.code, Some(1), "{told}");
    for words in [
        &format!("no connection to {endpoint}: Connection refused (os error 111); tried "),
        " s, and no server responded",
        "hint: check the setting of the endpoint",
    ] {
        assert!(told.stderr.contains(words), "{told}");
    }
}

#[test]
fn the_deadline_is_set_by_flag_variable_profile_and_configuration() {
    let proxy = Proxy::new(&Server::moto().endpoint, Slowness::default());
    let bucket = Bucket::without_store("deadline", Server::moto().behind(&proxy));
    proxy.set(Schedule::From(1, Fault::Reset));
    let configured = "deadline = \"1s\"\n";
    let profile = "deadline = \"1h\"\n[profile.p]\nfrom-environment = true\ndeadline = \"1s\"\n";
    for (configuration, words, variable) in [
        ("deadline = \"1h\"\n", &["--deadline", "1s", "ls"][..], "1h"),
        ("deadline = \"1h\"\n", &["ls"], "1s"),
        (profile, &["--store-profile", "p", "ls"], ""),
        (configured, &["ls"], ""),
    ] {
        bucket
            .env
            .write("home/.config/store/config.toml", configuration);
        let mut command = bucket.command(words.iter().copied());
        if !variable.is_empty() {
            command.env("STORE_DEADLINE", variable);
        }
        let told = finished(command);
        assert_eq!(told.code, Some(1), "{told}");
        let traffic = proxy.take();
        assert!(traffic.requests() < 15, "{words:?}: {traffic:?}");
    }
}

#[test]
fn two_clusters_with_credentials_of_their_own_go_together() {
    let env = environment!();
    let mut text = String::new();
    for (name, server) in [("moto", Server::moto()), ("ceph", Server::ceph())] {
        let url = format!("s3://{BUCKET}/{}", fresh_prefix("profiles"));
        text += &format!(
            "[cluster.{name}]\nurl = {url:?}\nprofile = {name:?}\n[profile.{name}]\nendpoint = {:?}\n\
             region = {:?}\naccess-key-id = {:?}\nsecret-access-key = {:?}\n",
            server.endpoint, server.region, server.key, server.secret
        );
    }
    env.write("home/.config/store/config.toml", text);
    trees::version(&env.path("tree"), 3, 1, 200_000);
    for words in [
        &["init", "moto"][..],
        &["init", "ceph"],
        &["put", "tree", "project/a/b", "--store", "moto"],
        &["duplicate", "project/a/b", "--from", "moto", "--to", "ceph"],
        &["get", "project/a/b", "out", "--store", "ceph"],
    ] {
        let mut command = env.command(words);
        // Settings for another endpoint, with invalid credentials.
        command.env("AWS_ACCESS_KEY_ID", "wrong");
        command.env("AWS_ENDPOINT_URL", "http://wrong.invalid");
        good(command);
    }
    assert_same_tree(&env.path("tree"), &env.path("out"));
}

#[test]
fn a_program_that_a_profile_names_gives_credentials() {
    let env = environment!();
    let server = Server::ceph();
    let url = format!("s3://{BUCKET}/{}", fresh_prefix("process"));
    let aws = |program: &str| {
        let text = format!(
            "[profile signed]\nregion = {}\nendpoint_url = {}\ncredential_process = {program}\n",
            server.region, server.endpoint
        );
        env.write("home/.aws/config", text);
    };
    let printed = format!(
        r#"{{"Version": 1, "AccessKeyId": {:?}, "SecretAccessKey": {:?}, "Expiration": "2999-01-01T00:00:00Z"}}"#,
        server.key, server.secret
    );
    env.write("printed", printed);
    let command = |words: &[&str]| {
        let mut command = env.command(["--store", &url]);
        command.args(words).env("AWS_PROFILE", "signed");
        command
    };
    aws(&format!("cat '{}'", env.path("printed").display()));
    trees::version(&env.path("tree"), 3, 1, 200_000);
    good(command(&["init"]));
    good(command(&["put", "tree", "project/a/b"]));
    good(command(&["get", "project/a/b", "out"]));
    assert_same_tree(&env.path("tree"), &env.path("out"));
    aws("echo sign in first >&2; exit 4");
    let failed = finished(command(&["ls"]));
    assert_eq!(failed.code, Some(1), "{failed}");
    let told = &failed.stderr;
    assert!(told.contains("exit status: 4: sign in first"), "{told}");
    assert!(
        told.contains("hint: run the program that `credential_process`"),
        "{told}"
    );
}

#[test]
fn a_long_wait_is_told_with_what_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server {
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        ..Server::moto()
    };
    let bucket = Bucket::without_store("wait", server);
    let mut command = bucket.command(["ls"]);
    command
        .env_remove("AWS_READ_TIMEOUT")
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let _asked = stream.read(&mut [0; 4096]).unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    let (prefix, url) = (bucket.url.trim_start_matches("s3:/"), &bucket.url);
    assert_eq!(
        told.next().unwrap().unwrap(),
        format!("waiting 30 s for {prefix}/format of {url}")
    );
    stream
        .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(
        told.next().unwrap().unwrap(),
        format!("error: {url}: there is no store")
    );
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// A listener that accepts connections and never answers, and a bucket with its address.
fn silent(name: &str) -> (TcpListener, Bucket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server {
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        ..Server::moto()
    };
    (listener, Bucket::without_store(name, server))
}

#[test]
fn a_server_that_never_answers_is_given_up_at_the_deadline() {
    let (listener, bucket) = silent("silent");
    let mut command = bucket.command(["get", "project/a/b", "out", "--deadline", "6s"]);
    command
        .env_remove("AWS_READ_TIMEOUT")
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let told: Finished = child.wait_with_output().unwrap().into();
    drop(listener);
    assert_eq!(told.code, Some(1), "{told}");
    let why = "no answer in time: nothing came for 6 s";
    assert!(told.stderr.contains(why), "{told}");
}

#[test]
fn a_signal_ends_the_wait_for_a_server_that_never_answers() {
    let (listener, bucket) = silent("signal");
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = bucket.command(["ls", "--deadline", "1h"]);
        command
            .env_remove("AWS_READ_TIMEOUT")
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let _asked = stream.read(&mut [0; 4096]).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let told: Finished = child.wait_with_output().unwrap().into();
        assert_eq!(told.code, Some(130), "{told}");
        let why = format!("stopped on request, while {} did not answer", bucket.url);
        assert!(told.stderr.contains(&why), "{told}");
    }
}

#[test]
fn the_url_of_a_cluster_has_its_profile_wherever_it_is_named() {
    let env = environment!();
    let server = Server::moto();
    let url = format!("s3://{BUCKET}/{}", fresh_prefix("by-url"));
    let here = env.path("home/.local/share/store");
    let text = format!(
        "[cluster.far]\nurl = {url:?}\nprofile = \"p\"\n[profile.p]\nendpoint = {:?}\nregion = {:?}\n\
         access-key-id = {:?}\nsecret-access-key = {:?}\n\
         [job.nightly]\nfrom = {here:?}\nto = {url:?}\nrefs = [\"project/a\"]\n\
         [job.other]\nfrom = {here:?}\nto = \"{url}-2\"\nprofile = \"p\"\nrefs = [\"project/a\"]\n",
        server.endpoint, server.region, server.key, server.secret
    );
    env.write("home/.config/store/config.toml", text);
    trees::version(&env.path("tree"), 3, 1, 200_000);
    let second = format!("{url}-2");
    for words in [
        &["init", &url][..],
        &["init", &second, "--store-profile", "p"],
        &["put", "tree", "project/a/b"],
        &["duplicate", "--job", "nightly"],
        &["duplicate", "--job", "other"],
        &["ls", "--store", &url],
    ] {
        let mut command = env.command(words);
        command.env("AWS_ACCESS_KEY_ID", "wrong");
        command.env("AWS_ENDPOINT_URL", "http://wrong.invalid");
        good(command);
    }
}

/// With `--require-local`, the hint names the bucket that has the cache, and says if a cluster does not answer.
#[test]
fn a_run_that_wants_its_cache_here_names_the_bucket_that_has_it() {
    let env = environment!();
    let server = Server::moto();
    let url = format!("s3://{BUCKET}/{}", fresh_prefix("where"));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut text = String::new();
    for (name, endpoint) in [
        ("far", server.endpoint.clone()),
        ("mute", format!("http://{}", silent.local_addr().unwrap())),
    ] {
        text += &format!(
            "[cluster.{name}]\nurl = {url:?}\nprofile = {name:?}\n[profile.{name}]\nendpoint = {endpoint:?}\n\
             region = {:?}\naccess-key-id = {:?}\nsecret-access-key = {:?}\n",
            server.region, server.key, server.secret
        );
    }
    env.write("home/.config/store/config.toml", text);
    trees::version(&env.path("tree"), 3, 1, 200_000);
    let cache = "project/llama/cache";
    for words in [
        &["init", "far"][..],
        &["put", "tree", cache, "--store", "far"],
    ] {
        good(env.command(words));
    }
    for (project, told) in [
        ("llama", "far has it"),
        ("other", "no cluster that answered has it"),
    ] {
        let words = [
            "run",
            "--project",
            project,
            "--base",
            "base",
            "--require-local",
            "--",
            "true",
        ];
        let refused = finished(env.command(words));
        assert_eq!(refused.code, Some(3), "{refused}");
        for words in [told, "mute did not answer"] {
            assert!(refused.stderr.contains(words), "{words}: {refused}");
        }
    }
}
