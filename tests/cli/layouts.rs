//! Layouts of `store run` in the configuration: obvious mistakes are reported before the command starts.

use std::fs;
use std::os::unix::fs::symlink;

use support::environment;

use crate::run::run;
use crate::run_compiles::CONFIG;

#[test]
fn a_layout_that_cannot_be_meant_is_refused_before_the_command() {
    let env = environment!();
    for (text, key) in [
        ("team = \"t\"\nexclude = [\"a[\"]", "exclude"),
        (
            "team = \"t\"\ncompile.neff.dir = \"~/n\"",
            "compile.neff.dir",
        ),
        (
            "team = \"t\"\ncompile.neff.dir = \"rel\"",
            "compile.neff.dir",
        ),
        ("team = \"t\"\nlinks.p = \"/x\"", "links.p"),
        ("team = \"t\"\nlinks.l = \"rel\"", "links.l"),
        ("team = \"p\"", "team"),
        ("team = \"p/t\"", "team"),
    ] {
        let text = format!("[layout.ours]\nproject = \"p\"\n{text}\n");
        let file = env.write(CONFIG, text);
        let refused = env.store(run(
            &["--team", "vision", "--layout", "ours"],
            "touch started",
        ));
        assert_eq!(refused.code, Some(2), "{refused}");
        let told = format!(
            "error: configuration {}: layout.ours.{key}: ",
            file.display()
        );
        assert!(refused.stderr.starts_with(&told), "{refused}");
        for made in ["started", "base", "~", "rel"] {
            assert!(!env.path(made).exists(), "{made}: {refused}");
        }
    }
}

#[test]
fn what_is_in_the_place_of_a_link_is_refused_before_the_command() {
    let env = environment!();
    let text = "[layout.ours]\nproject = \"p\"\nteam = \"t\"\nlinks.hf = \"{project}/hf\"\n";
    env.write(CONFIG, text);
    let link = env.path("base/hf");
    let started = || {
        run(
            &["--layout", "ours"],
            "touch started; echo new > base/hf/new",
        )
    };
    let refused = |found: &str| {
        let refused = env.store(started());
        assert_eq!(refused.code, Some(5), "{refused}");
        assert!(refused.stderr.contains(found), "{refused}");
        assert!(!env.path("started").exists(), "{refused}");
        assert!(!env.path("base/p").exists(), "{refused}");
    };
    env.write("base/hf", "own");
    refused("found a file");
    assert_eq!(fs::read_to_string(&link).unwrap(), "own");
    fs::remove_file(&link).unwrap();
    symlink("/elsewhere", &link).unwrap();
    refused("found a link to /elsewhere");
    fs::remove_file(&link).unwrap();
    env.write("base/hf/blob", "own");
    refused("found a directory with files");
    fs::remove_file(env.path("base/hf/blob")).unwrap();
    // An empty directory gives way, and the link of an earlier run stays.
    for _ in 0..2 {
        env.ok(started());
        assert_eq!(fs::read_link(&link).unwrap(), env.path("base/p/hf"));
    }
    env.write(CONFIG, text.replace("hf\"\n", "{job}\"\n"));
    for job in ["one", "two"] {
        let own = ["--layout", "ours", "--job", job];
        env.ok(run(&own, "echo new > base/hf/new"));
        assert_eq!(fs::read_link(&link).unwrap(), env.path("base/p").join(job));
    }
    assert_eq!(env.ok(["cat", "project/llama/cache:hf/new"]), "new\n");
}

#[test]
fn a_command_that_replaces_a_link_is_told_that_what_it_wrote_is_not_saved() {
    let env = environment!();
    // One is nested, and one ends with a slash.
    let text = "[layout.ours]\nproject = \"p\"\nteam = \"t\"\nlinks.\"deep/hf\" = \"{project}/hf\"\nlinks.\"data/\" = \"{project}/data\"\n";
    env.write(CONFIG, text);
    let own = ["--layout", "ours"];
    for _ in 0..2 {
        env.ok(run(&own, "echo a > base/deep/hf/a; echo b > base/data/b"));
    }
    assert_eq!(env.ok(["cat", "project/llama/cache:hf/a"]), "a\n");
    assert_eq!(env.ok(["cat", "project/llama/cache:data/b"]), "b\n");
    let script = "rm base/data; mkdir base/data; echo c > base/data/c; echo d > base/p/d";
    let replaced = env.store(run(&own, script));
    assert_eq!(replaced.code, Some(5), "{replaced}");
    assert!(
        replaced
            .stderr
            .contains("base/data: expected nothing or the layout's link")
            && replaced.stderr.contains("it is not saved"),
        "{replaced}"
    );
    // What it wrote elsewhere is saved nevertheless.
    assert_eq!(env.ok(["cat", "project/llama/cache:d"]), "d\n");
}
