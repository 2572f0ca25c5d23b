//! Rules and limits that make no sense are refused.

use support::environment;

#[test]
fn a_policy_that_nobody_means_is_refused() {
    let env = environment!();
    env.ok(["init"]);
    for (words, why) in [
        (["--quota", "500"], "500 B is less than one version takes"),
        (["--quota", "0"], "0 B is less than one version takes"),
        (["--last", "0"], "last 0 keeps nothing"),
        (["--within", "0d"], "within 0 keeps nothing"),
        (["--weekly", "0"], "weekly 0 keeps nothing"),
    ] {
        let refused = env.store(["policy", "keep", "project/*"].iter().chain(&words));
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }
    let refused = env.store(["gc", "--keep-last", "0", "--keep-weekly", "0"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    for words in [["policy", "max-size", "20"], ["gc", "--max-size", "20"]] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(2), "{refused}");
        let why = "20 B is less than one version takes: write it with its unit";
        assert!(refused.stderr.contains(why), "{refused}");
    }
    for text in [
        "max-size = \"20\"",
        "[[keep]]\nrefs = \"*\"\nquota = \"20\"",
    ] {
        env.write("policy.toml", text);
        let refused = env.store(["policy", "set", "policy.toml"]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(
            refused.stderr.contains("write it with its unit"),
            "{refused}"
        );
    }
    // As from a command that failed before a pipe. What removes all rules says so.
    for text in ["", "\n# nothing\n"] {
        env.write("policy.toml", text);
        let refused = env.store(["policy", "set", "policy.toml"]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains("says nothing"), "{refused}");
    }
    env.write("policy.toml", "max-size = \"1TB\"\n[[keep]]\nrefs = 7\n");
    let refused = env.store(["policy", "set", "policy.toml"]);
    assert!(
        refused.stderr.contains("line 3, column 8: ") && !refused.stderr.contains("\\n"),
        "{refused}"
    );
    env.write("policy.toml", "[[keep]]\nrefs = \"*\"\nlast = 0\n");
    assert_eq!(env.store(["policy", "set", "policy.toml"]).code, Some(2));
    assert!(env.ok(["policy"]).starts_with("# no policy"));
    let early = env.store(["policy", "keep", "project/*", "--last", "3"]);
    assert_eq!(early.code, Some(0), "{early}");
    assert!(
        early
            .stderr
            .contains("note: \"project/*\" matches no ref yet"),
        "{early}"
    );
    env.write("in/file", "some words");
    env.ok(["put", "in", "project/a/data"]);
    let again = env.store(["policy", "keep", "project/*", "--last", "3"]);
    assert!(!again.stderr.contains("matches no ref"), "{again}");
}
