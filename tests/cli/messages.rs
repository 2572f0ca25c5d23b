//! What the message of a version may hold.

use support::environment;

const TOKEN: &str = "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";

/// Whoever reads a version reads its message.
#[test]
fn a_message_keeps_no_credentials() {
    let env = environment!();
    env.write("in/a", "1");
    let message = format!("with {TOKEN}");
    for words in [
        &["put", "in", "project/a/b", "--message", &message][..],
        &["save", "in", "project/a/b", "--message", &message],
        &["run", "--project", "a", "--job", &message, "--", "true"],
    ] {
        let refused = env.store(words);
        assert!(!matches!(refused.code, Some(0)), "{refused}");
        assert!(
            refused.stderr.contains("an access token of Hugging Face"),
            "{refused}"
        );
        assert!(!refused.stderr.contains(TOKEN), "{refused}");
    }
    let script = format!("HF_TOKEN={TOKEN}; echo 1 > $STORE_SEED_DIR/a");
    env.ok(["run", "--seed", "project/a/seed", "--", "sh", "-c", &script]);
    let told = env.ok(["history", "project/a/seed"]);
    assert!(
        told.contains("made by sh") && !told.contains("HF_TOKEN"),
        "{told}"
    );
}

/// What is typed wrongly most often.
#[test]
fn a_word_that_is_no_number_or_ref_is_told_what_is_expected() {
    let env = environment!();
    env.write("in/a", "1");
    for (words, told) in [
        (
            &["put", "--base", "latest", "in", "project/a/b"][..],
            "expected the number of a version",
        ),
        (
            &["save", "in", "project/a/b", "--base", "latest"],
            "expected the number of a version",
        ),
        (
            &["watch", "in", "project/a/b", "--keep", "0"],
            "0 keeps nothing",
        ),
        (&["ls", "/project/a/b"], "expected no `/` at its start"),
        (
            &["put", "in", "/project/a/b"],
            "expected no `/` at its start",
        ),
    ] {
        let refused = env.store(words);
        assert_eq!(refused.code, Some(2), "{refused}");
        assert!(refused.stderr.contains(told), "{refused}");
    }
}
