//! Rules and limits that make no sense are refused.

use support::environment;

#[test]
fn a_policy_that_nobody_means_is_refused() {
    let env = environment!();
    env.ok(["init"]);
    for (words, why) in [
        (["--quota", "500"], "500 B is less than one version takes"),
        (["--quota", "0"], "0 B is less than one version takes"),
        (["--last", "0"], "0 keeps nothing"),
        (["--within", "0d"], "0 keeps nothing"),
        (["--weekly", "0"], "0 keeps nothing"),
    ] {
        let refused = env.store(["policy", "keep", "project/*"].iter().chain(&words));
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }
    for rule in ["--keep-last", "--keep-within", "--keep-weekly"] {
        let refused = env.store(["gc", rule, "0"]);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains("0 keeps nothing"), "{refused}");
    }
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
    // In a file, too: of a policy, and of the configuration, which every collection of this host would follow.
    for rule in ["last = 0", "within = \"0\"", "daily = 0", "monthly = 0"] {
        let text = format!("[[keep]]\nrefs = \"*\"\n{rule}\n");
        env.write("policy.toml", &text);
        env.write("home/.config/store/config.toml", &text);
        for words in [&["policy", "set", "policy.toml"][..], &["gc"]] {
            let refused = env.store(words);
            assert_eq!(refused.code, Some(2), "{refused}");
            let why = ": 0 keeps nothing";
            assert!(
                refused.stderr.contains(why) && refused.stderr.contains("line 3"),
                "{refused}"
            );
        }
    }
    std::fs::remove_file(env.path("home/.config/store/config.toml")).unwrap();
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
