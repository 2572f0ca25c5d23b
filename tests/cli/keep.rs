//! Why some verbs do not support `--keep`.

use support::environment;

#[test]
fn what_is_not_kept_is_refused_with_its_reason() {
    let env = environment!();
    env.write("in/a", "1");
    let refused = |words: &[&str], why: &str| {
        let said = env.store(words.iter().copied());
        assert_eq!(said.code, Some(2), "{said}");
        let line = said.stderr.replace('\n', " ");
        assert!(line.contains(why), "{said}");
    };
    let put = ["put", "in", "project/demo/a", "--keep"];
    refused(
        &[&put[..], &["dates"]].concat(),
        "[possible values: modes, owners, xattrs]",
    );
    env.ok(["put", "in", "project/demo/a", "--keep", "modes,xattrs"]);
    let made = ["materialize", "project/demo/a", "out", "--keep", "modes"];
    refused(&made, "use `store get --keep`");
    assert!(!env.path("out").exists());
}
