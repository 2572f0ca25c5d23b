//! Credentials in puts.

use support::{check, environment};

use crate::readers::set_mode;

/// A token with random letters.
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

/// In logs, answers and lists of variables, and in the private files of tools.
#[test]
fn credentials_are_found_wherever_they_stand() {
    let env = environment!();
    let word = TOKEN.trim_start_matches("hf_");
    let held = [
        ("colour.log", format!("\u{1b}[31m{TOKEN}\u{1b}[0m\n")),
        ("said.json", format!("{{\"log\": \"token:\\n{TOKEN}\"}}")),
        ("url.txt", format!("https://a/b?x%3D{TOKEN}\n")),
        ("google.txt", format!("key=AIza{word}4\n")),
        ("oauth.txt", format!("ya29.{word}\n")),
        ("deploy.txt", format!("gldt-{word}\n")),
        ("azure.sh", format!("export AZURE_CLIENT_SECRET={word}~9\n")),
        (
            "keys.sh",
            format!("AZURE_STORAGE_KEY={}==\n", &word.repeat(3)[..86]),
        ),
        ("rc", format!("//npm.example/:_authToken={word}\n")),
        (
            ".modal.toml",
            "[me]\ntoken_secret = \"as-kT9vX2mQ4w\"\n".to_owned(),
        ),
        (
            ".trussrc",
            "[baseten]\napi_key = kT9vX2mQ.4wZ8\n".to_owned(),
        ),
        ("msal_token_cache.json", "{\"AccessToken\": {}}".to_owned()),
        ("msal_token_cache.bin", "\0\u{1}".to_owned()),
        (
            "training_args.bin",
            format!("PK\u{3}\u{4}\0\0hub_tokenq\u{8}X%\0\0\0{TOKEN}q\u{9}X\0"),
        ),
    ];
    for (name, text) in &held {
        env.write(format!("in/{name}"), text);
    }
    env.write(
        "in/names.py",
        "from hf import hf_BertForSequenceClassificationModelX1\n",
    );
    let refused = env.store(["put", "in", "project/demo/a"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    for (name, _) in &held {
        assert!(
            refused.stderr.contains(&format!("  {name}: ")),
            "{name}: {refused}"
        );
    }
    assert!(!refused.stderr.contains("names.py"), "{refused}");
}

#[test]
fn a_file_by_itself_is_judged_by_its_name_too() {
    let env = environment!();
    for (path, text) in [
        (".kube/config", "users:\n- user:\n    token: kT9vX2mQ4w\n"),
        (
            ".docker/config.json",
            "{\"auths\":{\"r\":{\"auth\": \"bWU6c2VjcmV0cw==\"}}}",
        ),
        (
            ".cargo/credentials.toml",
            "[registry]\ntoken = \"kT9vX2mQ4w\"\n",
        ),
        (".env", "export DB_PASSWORD='correct-horse'\n"),
        (
            "kaggle.json",
            "{\"username\":\"me\",\"key\":\"4f9d02c1b8e67a35\"}",
        ),
    ] {
        let path = env.write(format!("home/{path}"), text);
        let source = path.to_str().unwrap();
        let finished = env.store(["put", source, "project/demo/a"]);
        assert_eq!(finished.code, Some(1), "{source}: {finished}");
        assert!(finished.stderr.contains("the file itself: "), "{finished}");
        let hint = "if it holds none, take it with --allow-secrets";
        assert!(finished.stderr.contains(hint), "{finished}");
        let name = path.file_name().unwrap().to_str().unwrap();
        for allowed in [["--allow-secret", name], ["--allow-secrets", "--always"]] {
            let put = ["put", source, "project/demo/a"];
            env.ok([&put[..], &allowed].concat());
        }
    }
    // Detected by name and mode alone, without any known content.
    let key = env.write("home/.ssh/id_work", "opaque");
    set_mode(&key, 0o600);
    let finished = env.store(["put", key.to_str().unwrap(), "project/demo/a"]);
    assert_eq!(finished.code, Some(1), "{finished}");
}

#[test]
fn a_url_with_a_password_in_a_file_of_settings_is_found() {
    let env = environment!();
    let url = "https://bob:kT9vX2mQ4w@pypi.intern/simple";
    for (path, text) in [
        ("pip.conf", format!("[global]\nindex-url = {url}\n")),
        (
            ".pip/pip.conf",
            format!("[global]\nextra-index-url = {url}\n"),
        ),
        (
            "requirements-dev.txt",
            format!("--index-url {url}\ntorch\n"),
        ),
        ("constraints.txt", format!("x @ git+{url}\n")),
        (
            ".git/config",
            format!("[remote \"origin\"]\n\turl = {url}\n"),
        ),
        (".gitmodules", format!("\turl = {url}\n")),
        ("uv.toml", format!("url = \"{url}\"\n")),
        (".condarc", format!("channels:\n  - {url}\n")),
        (
            ".env",
            "DATABASE_URL=postgres://bob:kT9vX2mQ4w@db/app\n".to_owned(),
        ),
        (".npmrc", format!("registry={url}\n")),
    ] {
        env.write(format!("in/{path}"), text);
        let finished = env.store(["put", "in", "project/demo/a"]);
        assert_eq!(finished.code, Some(1), "{path}: {finished}");
        assert!(finished.stderr.contains(&format!("{path}: ")), "{finished}");
        env.write(
            format!("in/{path}"),
            "index-url = https://${USER}:${PASSWORD}@pypi.intern/simple\n",
        );
        // The mode does not matter for such a file, except for names that usually hold tokens.
        if path != ".npmrc" {
            set_mode(&env.path(format!("in/{path}")), 0o600);
        }
        env.ok(["put", "in", "project/demo/a"]);
        std::fs::remove_dir_all(env.path("in")).unwrap();
    }
}

#[test]
fn a_token_in_a_wide_text_is_found() {
    let env = environment!();
    let text = format!("login with {TOKEN}\r\n");
    for (name, to) in [
        ("le", u16::to_le_bytes as fn(u16) -> [u8; 2]),
        ("be", u16::to_be_bytes),
    ] {
        for mark in ["", "\u{feff}"] {
            let bytes: Vec<u8> = format!("{mark}{text}")
                .encode_utf16()
                .flat_map(to)
                .collect();
            env.write("in/notes.txt", bytes);
            let finished = env.store(["put", "in", "project/demo/a"]);
            assert_eq!(finished.code, Some(1), "{name} {mark:?}: {finished}");
            let found = "notes.txt: an access token of Hugging Face";
            assert!(finished.stderr.contains(found), "{finished}");
        }
    }
}

/// A login in a directory of somebody's work does not make it a cache of Hugging Face, which leaves out `assets/` and others.
#[test]
fn a_token_alone_makes_no_hf_home() {
    let env = environment!();
    let own = ["assets/a", "downloads/d", "modules/m", "xet/x"];
    for name in ["work", "cache"] {
        for path in own {
            env.write(format!("{name}/{path}"), "mine");
        }
        env.write(format!("{name}/token"), TOKEN);
        let stored = format!("[login]\nhf_token = {TOKEN}\n");
        env.write(format!("{name}/stored_tokens"), stored);
    }
    let put = env.store(["put", "work", "project/demo/work"]);
    assert_eq!(put.code, Some(1), "{put}");
    for told in ["2 paths hold what looks like credentials", "  token: "] {
        assert!(put.stderr.contains(told), "{put}");
    }
    let save = env.store(["save", "work", "project/demo/work"]);
    assert_eq!(save.code, Some(6), "{save}");
    for path in ["work/token", "work/stored_tokens"] {
        assert!(save.stderr.contains(path), "{save}");
    }
    assert!(!save.stderr.contains(TOKEN), "{save}");
    let listed = env.ok(["ls", "-r", "project/demo/work"]);
    assert!(own.iter().all(|path| listed.contains(path)), "{listed}");
    assert!(!listed.contains("token"), "{listed}");
    // With another sign of an HF_HOME, its login is left out and named.
    env.write("cache/hub/CACHEDIR.TAG", "tag");
    let put = env.store(["put", "cache", "project/demo/cache"]);
    assert_eq!(put.code, Some(0), "{put}");
    let told = "left out, as they hold credentials: stored_tokens, token";
    assert!(put.stderr.contains(told), "{put}");
}
