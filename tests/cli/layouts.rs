//! Layouts of `store run` in the configuration: obvious mistakes are reported before the command starts.

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
