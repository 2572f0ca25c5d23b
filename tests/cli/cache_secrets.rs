//! Entries of compile caches with files that look like credentials: they are kept out of refs, and named.

use serde_json::Value;
use support::{TestEnvironment, environment};

use crate::cache::module;
use crate::readers::set_mode;
use crate::run::run;

const REF: &str = "project/llama/compiled";
const TOKEN: &str = "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";

/// The entries that the ref has.
fn entries(env: &TestEnvironment, name: &str) -> Vec<String> {
    let listed = env.store(["ls", name]);
    let names = String::from_utf8(listed.stdout).unwrap();
    names
        .lines()
        .map(|name| name.trim_end_matches('/').to_owned())
        .collect()
}

fn kernel(env: &TestEnvironment, dir: &str, key: &str) -> String {
    let key = key.repeat(52);
    env.write(format!("{dir}/{key}/kern.json"), "{}");
    env.write(
        format!("{dir}/{key}/__grp__kern.json"),
        format!(r#"{{"child_paths": {{"kern.json": "/x/{key}/kern.json"}}}}"#),
    );
    key
}

#[test]
fn an_entry_with_credentials_is_kept_out_and_named() {
    let env = environment!();
    let clean = kernel(&env, "here", "A");
    let tokens = kernel(&env, "here", "B");
    let key = kernel(&env, "here", "C");
    env.write(
        format!("here/{tokens}/source.py"),
        format!("key = '{TOKEN}'"),
    );
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj".repeat(12)
    );
    env.write(format!("here/{key}/id"), pem);
    let push = ["cache", "--profile", "triton", "push", "here", REF];
    for _ in 0..2 {
        let done = env.store(push);
        assert_eq!(done.code, Some(6), "{done}");
        let named = format!("{tokens}/source.py: looks like credentials");
        assert!(done.stderr.contains(&named), "{done}");
        assert!(done.stderr.contains(&format!("{key}/id: looks")), "{done}");
        assert!(!done.stderr.contains(TOKEN), "{done}");
        assert_eq!(entries(&env, REF), [clean.as_str()]);
    }
    let json = env.store([&push[..], &["--json"]].concat());
    let told: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(told["secrets"].as_array().unwrap().len(), 2, "{told}");
    // The command in the hint is whole.
    let refused = env.store(push);
    let hint = refused.stderr.lines().last().unwrap().to_owned();
    let command = hint.split('`').nth(1).unwrap();
    let allowed = format!("{REF} --allow-secret {tokens}/source.py");
    assert!(command.ends_with(&allowed), "{refused}");
    let done = env.store(command.split(' ').skip(1));
    assert_eq!(done.code, Some(6), "{done}");
    assert_eq!(entries(&env, REF), [clean, tokens]);
}

#[test]
fn a_run_pushes_no_entry_with_credentials() {
    let env = environment!();
    let script = format!(
        "mkdir -p $TRITON_CACHE_DIR; cd $TRITON_CACHE_DIR; for name in D E; do k=$(printf \"$name%.0s\" $(seq 52)); mkdir $k; \
         echo '{{}}' > $k/kern.json; echo '{{\"child_paths\": {{}}}}' > $k/__grp__kern.json; done; cd D*; echo {TOKEN} > source.py"
    );
    let done = env.store(run(&[], &script));
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("looks like credentials"), "{done}");
    let all = env.ok(["ls", "project/llama"]);
    let refs = all
        .split_whitespace()
        .filter(|word| word.starts_with("project/llama/"));
    let listed: String = refs.map(|name| env.ok(["ls", "-r", name])).collect();
    assert!(listed.contains(&"E".repeat(52)), "{listed}");
    assert!(!listed.contains(&"D".repeat(52)), "{listed}");
}

#[test]
fn a_credential_in_the_flags_of_an_entry_is_not_printed() {
    let env = environment!();
    let wanted = module(&env.path("own"), "10+aaaa", 1);
    std::fs::remove_file(wanted.join("model.neff")).unwrap();
    let other = module(&env.path("own"), "10+bbbb", 2);
    let flags = format!("[\"--key={TOKEN}\", \"-O1\", \"{TOKEN}\"]");
    std::fs::write(other.join("compile_flags.json"), flags).unwrap();
    for options in [&[][..], &["--json"]] {
        let told = env.ok([&["neff", "why", "MODULE_10+aaaa", "own"], options].concat());
        assert!(told.contains("compile_flags.json: --key"), "{told}");
        assert_eq!(
            told.matches("(looks like credentials)").count(),
            2,
            "{told}"
        );
        assert!(!told.contains(TOKEN), "{told}");
    }
}

#[test]
fn a_push_of_private_files_names_no_option_that_it_lacks() {
    let env = environment!();
    let key = kernel(&env, "here", "P");
    set_mode(&env.path(format!("here/{key}/kern.json")), 0o600);
    let done = env.store(["cache", "--profile", "triton", "push", "here", REF]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("for its user alone"), "{done}");
    assert!(!done.stderr.contains("--readable"), "{done}");
}
