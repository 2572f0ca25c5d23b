//! Credentials in what is put, and who may read a store.

use std::os::unix::fs::PermissionsExt;

use support::{check, environment};

/// Letters that look drawn by lot.
const TOKEN: &str = "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";

#[test]
fn all_that_holds_credentials_is_listed_and_one_is_let_in() {
    let env = environment!();
    env.write("in/app/.env", format!("HF_TOKEN={TOKEN}\n"));
    env.write(
        "in/notes.md",
        format!("login with {TOKEN}, not hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"),
    );
    check!(env, env.store(["put", "in", "project/demo/a"]), @"
    exit code: 1
    --- stdout
    --- stderr
    made a store in [ROOT]/home/.local/share/store
    error: 2 paths hold what looks like credentials; nothing was put
      app/.env: an access token of Hugging Face
      notes.md: an access token of Hugging Face
    hint: leave such a path out with --exclude /app/.env, or, if it is none, take it with --allow-secret /app/.env; --allow-secrets takes all of them
    ");
    check!(env, env.store(["put", "in", "project/demo/a", "--json", "--exclude", ".env"]), @r#"
    exit code: 1
    --- stdout
    --- stderr
    {"error":"1 path holds what looks like credentials; nothing was put","kind":"Denied","details":["notes.md: an access token of Hugging Face"],"causes":[],"hint":"leave such a path out with --exclude /notes.md, or, if it is none, take it with --allow-secret /notes.md; --allow-secrets takes all of them","exit_code":1}
    "#);
    env.ok([
        "put",
        "in",
        "project/demo/a",
        "--exclude",
        ".env",
        "--allow-secret",
        "*.md",
    ]);
    assert_eq!(env.ok(["ls", "-r", "project/demo/a"]), "app/\nnotes.md\n");
}

#[test]
fn the_embedded_store_is_its_owners_alone() {
    let mode = |path: std::path::PathBuf| path.metadata().unwrap().permissions().mode() & 0o7777;
    let env = environment!();
    env.write("in", "text");
    env.ok(["put", "in", "project/demo/a"]);
    assert_eq!(mode(env.path("home/.local/share/store")), 0o700);
    let other = environment!();
    other.ok(["init"]);
    assert_eq!(mode(other.path("home/.local/share/store")), 0o700);
    // One that is named is made as other directories are.
    other.ok(["init", "named"]);
    assert_ne!(mode(other.path("named")), 0o700);
}

#[test]
fn a_shared_store_follows_the_modes_of_its_directory() {
    let env = environment!();
    env.ok(["init", "--shared", "group"]);
    env.write("in", vec![7; 3000]);
    // The strictest umask there is.
    let program = env.command(["x"]).get_program().to_owned();
    let mut put = std::process::Command::new("sh");
    put.args([
        "-c",
        "umask 077; exec \"$0\" put in project/demo/a --store group",
    ])
    .arg(program)
    .current_dir(env.root())
    .env_clear()
    .env("HOME", env.path("home"));
    let finished: support::Finished = put.output().unwrap().into();
    assert_eq!(finished.code, Some(0), "{finished}");
    let mut pending = vec![env.path("group")];
    let (mut directories, mut files) = (0, 0);
    while let Some(path) = pending.pop() {
        let found = path.metadata().unwrap();
        let mode = found.permissions().mode();
        if found.is_dir() {
            assert_eq!(mode & 0o2070, 0o2070, "{}: {mode:o}", path.display());
            directories += 1;
            pending.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            assert_eq!(mode & 0o040, 0o040, "{}: {mode:o}", path.display());
            files += 1;
        }
    }
    assert!(directories >= 5 && files >= 4, "{directories} {files}");
    let finished = env.store(["init", "--shared", "s3://bucket/x"]);
    assert_eq!(finished.code, Some(2), "{finished}");
}

#[test]
fn a_store_wants_a_directory_of_its_own() {
    let env = environment!();
    env.write("data/a", "text");
    env.write("data/b", "text");
    let finished = env.store(["init", "data"]);
    assert_eq!(finished.code, Some(5), "{finished}");
    assert!(finished.stderr.contains("nothing was made"), "{finished}");
    assert_eq!(std::fs::read_dir(env.path("data")).unwrap().count(), 2);
    // What is left of an attempt is no other thing.
    std::fs::create_dir_all(env.path("begun/reserve")).unwrap();
    env.ok(["init", "begun"]);
}
