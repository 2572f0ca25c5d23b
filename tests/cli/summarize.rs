//! summarize: the space that a namespace or a ref takes.

use jiff::civil::DateTime;
use support::{Random, TestEnvironment, check, environment};

/// Two refs that share a file of random bytes, and each have another one.
fn two_refs() -> TestEnvironment {
    let env = environment!();
    let mut random = Random::new(9);
    let shared = random.bytes(300_000);
    for (name, own) in [("one", 100_000), ("two", 200_000)] {
        env.write(format!("{name}/shared.bin"), &shared);
        env.write(
            format!("{name}/deep/own, \"quoted\".bin"),
            random.bytes(own),
        );
        support::trees::settle_times(&env.path(name), 9);
        env.ok(["put", name, &format!("project/demo/{name}")]);
    }
    env
}

#[test]
fn a_ref_and_its_paths() {
    let env = two_refs();
    check!(env, env.store(["summarize", "project/demo/one"]), @"
    exit code: 0
    --- stdout
    project/demo/one: 1 version of 1 ref
    logical  400 kB (newest), 400 kB (all versions)
    unique   100 kB in 5 chunks, stored 100 kB
    shared   300 kB in 8 chunks, stored 300 kB
    put      [TIME] by tester@[HOST], last used when it was put

      size  entries  modified (UTC)       type       permissions  path
    300 kB        1  [TIME]  file       -rw-r--r--   shared.bin
    100 kB        1  [TIME]  directory  drwxr-xr-x   deep
    --- stderr
    ");
    check!(env, env.store(["summarize", "project/demo/one@1", "--depth", "2", "--sort", "name", "--output", "csv"]), @r#"
    exit code: 0
    --- stdout
    name,versions,entries,bytes,version_bytes,unique_bytes,unique_stored_bytes,shared_bytes,shared_stored_bytes,modified,type,permissions,user,host,last_use
    project/demo/one@1,1,3,400000,400000,100280,100261,300295,300280,[TIME],,,tester,[HOST],
    deep,,1,100000,,,,,,[TIME],directory,drwxr-xr-x,,,
    "deep/own, ""quoted"".bin",,1,100000,,,,,,[TIME],file,-rw-r--r--,,,
    shared.bin,,1,300000,,,,,,[TIME],file,-rw-r--r--,,,
    --- stderr
    "#);
}

#[test]
fn paths_are_sorted_by_each_column() {
    let env = environment!();
    for (name, len, mode, age) in [
        ("b/run", 10, 0o755, 3),
        ("c", 30, 0o644, 1),
        ("d", 20, 0o600, 2),
    ] {
        let path = env.write(name, vec![1; len]);
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000 - age);
        std::fs::File::open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    std::os::unix::fs::symlink("c", env.path("b/link")).unwrap();
    env.ok(["put", ".", "project/demo/columns", "--exclude", "home"]);
    let sorted = |options: &[&str]| {
        let arguments = [
            "--json",
            "summarize",
            "project/demo/columns",
            "--depth",
            "2",
            "--sort",
        ];
        let said = env.ok([&arguments, options].concat());
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let parts = said["parts"].as_array().unwrap().clone();
        let files = parts
            .iter()
            .filter(|part| part["path"] != "b" && part["path"] != "b/link");
        let names = files.map(|part| part["path"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    for (options, expected) in [
        (&["size"] as &[_], "c d b/run"),
        (&["size", "--order", "asc"], "b/run d c"),
        (&["filepath"], "b/run c d"),
        (&["name", "--order", "desc"], "d c b/run"),
        (&["modified"], "c d b/run"),
        (&["modified", "--order", "asc"], "b/run d c"),
        (&["permissions"], "c d b/run"),
        (&["permissions", "--order", "desc"], "b/run d c"),
    ] {
        assert_eq!(sorted(options), expected, "{options:?}");
    }
    let said = env.ok([
        "--json",
        "summarize",
        "project/demo/columns",
        "--depth",
        "2",
        "--sort",
        "type",
    ]);
    let at = |name: &str| said.find(&format!("\"path\":\"{name}\"")).unwrap();
    assert!(at("b") < at("b/run") && at("d") < at("b/link"), "{said}");
}

#[test]
fn a_namespace_and_its_refs() {
    let env = two_refs();
    env.ok(["put", "one", "team/other/copy"]);
    check!(env, env.store(["summarize", "project/demo"]), @"
    exit code: 0
    --- stdout
    project/demo: 2 versions of 2 refs
    logical  900 kB (newest), 900 kB (all versions)
    unique   200 kB in 6 chunks, stored 200 kB
    shared   401 kB in 13 chunks, stored 401 kB
    put      [TIME] by tester@[HOST], last used when it was put

      size  unique  shared  entries  put (UTC)            by         last use  ref
    500 kB  200 kB  300 kB        3  [TIME]  tester@[HOST]            project/demo/two
    400 kB     0 B  401 kB        3  [TIME]  tester@[HOST]            project/demo/one
    --- stderr
    ");
    check!(env, env.store(["summarize", "project/demo", "--output", "json"]), @r#"
    exit code: 0
    --- stdout
    {"target":"project/demo","refs":2,"versions":2,"entries":6,"bytes":900000,"version_bytes":900000,"unique":{"chunks":6,"bytes":200320,"stored_bytes":[SIZE]},"shared":{"chunks":13,"bytes":400575,"stored_bytes":[SIZE]},"time":"[TIME]","user":"tester","host":"[HOST]","parts":[{"path":"project/demo/two","versions":1,"entries":3,"bytes":500000,"modified":"[TIME]","unique":{"chunks":6,"bytes":200320,"stored_bytes":[SIZE]},"shared":{"chunks":8,"bytes":300295,"stored_bytes":[SIZE]},"user":"tester","host":"[HOST]"},{"path":"project/demo/one","versions":1,"entries":3,"bytes":400000,"modified":"[TIME]","unique":{"chunks":0,"bytes":0,"stored_bytes":[SIZE]},"shared":{"chunks":13,"bytes":400575,"stored_bytes":[SIZE]},"user":"tester","host":"[HOST]"}]}
    --- stderr
    "#);
}

/// A ref's own share is what no other ref of any namespace has; `summarize` of the ref reports the same.
#[test]
fn refs_of_a_namespace_have_shares_of_their_own() {
    let env = two_refs();
    env.write("one/newer.bin", Random::new(4).bytes(50_000));
    // Bytes that only its own versions share count as its own; bytes in another namespace do not.
    env.ok(["put", "one", "project/demo/one"]);
    env.write("far/far.bin", Random::new(5).bytes(70_000));
    env.ok(["put", "far", "project/demo/far"]);
    env.ok(["put", "far", "team/other/copy"]);
    let said = env.ok(["--json", "summarize", "project/demo", "--sort", "name"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let about =
        |part: &serde_json::Value, field: &str| part[field]["bytes"].as_u64().unwrap() / 10_000;
    let parts = said["parts"].as_array().unwrap();
    let shares = parts.iter().map(|part| {
        let path = part["path"].as_str().unwrap();
        format!("{path} {} {}", about(part, "unique"), about(part, "shared"))
    });
    let shares: Vec<_> = shares.collect();
    let expected = [
        "project/demo/far 0 7",
        "project/demo/one 15 30",
        "project/demo/two 20 30",
    ];
    assert_eq!(shares, expected, "{said:#}");
    for part in parts {
        let alone = env.ok(["--json", "summarize", part["path"].as_str().unwrap()]);
        let alone: serde_json::Value = serde_json::from_str(&alone).unwrap();
        assert_eq!(part["unique"], alone["unique"], "{part}");
        assert_eq!(part["shared"], alone["shared"], "{part}");
    }
    let csv = env.ok(["summarize", "project/demo", "--output", "csv"]);
    let fields = csv.lines().map(|line| line.split(',').count());
    assert!(fields.clone().all(|count| count == 15), "{csv}");
    let far = csv
        .lines()
        .find(|line| line.starts_with("project/demo/far,"));
    let far: Vec<&str> = far.unwrap().split(',').collect();
    let stored = |field: &str| parts[0][field]["stored_bytes"].to_string();
    assert_eq!(far[6], stored("unique"), "{csv}");
    assert_eq!(far[8], stored("shared"), "{csv}");
    assert_eq!(far[12], "tester", "{csv}");
}

/// Columns, sizes, times and orders as in `truss train cache summarize`, for scripts that parse its output.
#[test]
fn as_truss_prints_it() {
    let env = two_refs();
    let truss = |options: &[&str]| {
        let mut command = env.command([&["summarize", "project/demo/one"], options].concat());
        let done = command.env("TZ", "UTC").output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    check!(env, env.store(["summarize", "project/demo/one", "--truss", "-o", "csv"]), @r#"
    exit code: 0
    --- stdout
    File Path,Size (bytes),Size (human readable),Modified,Type,Permissions
    deep,100000,100.00 KB,[TIME],directory,drwxr-xr-x
    "deep/own, ""quoted"".bin",100000,100.00 KB,[TIME],file,-rw-r--r--
    shared.bin,300000,300.00 KB,[TIME],file,-rw-r--r--
    --- stderr
    "#);
    let table = truss(&["--output", "cli-table", "--sort", "size", "--order", "desc"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("Cache captured at: 20"), "{table}");
    assert_eq!(
        lines[1..5],
        [
            "Project ID: project/demo/one",
            "",
            "Total files: 3",
            "Total size: 400.00 KB"
        ]
    );
    assert!(lines[6].starts_with("File Path"), "{table}");
    let paths: Vec<&str> = lines[7..]
        .iter()
        .map(|line| line.split("  ").next().unwrap())
        .collect();
    assert_eq!(
        paths,
        ["shared.bin", "deep", "deep/own, \"quoted\".bin"],
        "{table}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&truss(&["--truss", "--output", "json", "--sort", "size"])).unwrap();
    assert_eq!(json["project_id"], "project/demo/one");
    assert_eq!(json["total_files"], 3);
    assert_eq!(json["total_size_bytes"], 400_000);
    assert_eq!(json["total_size_human_readable"], "400.00 KB");
    let file = json["files"][2].as_object().unwrap();
    let keys: Vec<&str> = file.keys().map(String::as_str).collect();
    let expected = [
        "modified",
        "path",
        "permissions",
        "size_bytes",
        "size_human_readable",
        "type",
    ];
    assert_eq!(keys, expected);
    assert_eq!(file["path"], "shared.bin");
    // Equal entries keep their order.
    assert_eq!(json["files"][0]["path"], "deep");
    let modified = |zone: &str| -> DateTime {
        let mut command = env.command(["summarize", "project/demo/one", "--truss", "-o", "json"]);
        let done = command.env("TZ", zone).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        json["files"][0]["modified"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    };
    let ahead = modified("UTC").duration_until(modified("NPT-5:45"));
    assert_eq!(
        ahead.as_mins(),
        345,
        "times of the place where the reader is"
    );
    let whole = env.store(["summarize", "project/demo", "--truss"]);
    assert_eq!(whole.code, Some(2), "{whole}");
}

#[test]
fn what_is_not_there_is_3() {
    let env = two_refs();
    check!(env, env.store(["summarize", "project/none"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/none: no such namespace
    hint: `store ls` lists the namespaces
    ");
    check!(env, env.store(["summarize", "project/demo/one@5"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/one@5: no such version
    hint: list them with `store history project/demo/one`
    ");
    check!(env, env.store(["summarize", "project/demo/one:deep"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: project/demo/one:deep: expected a ref without path
    hint: a version is pinned, dropped and listed as a whole
    ");
}

#[test]
fn namespaces_by_what_they_take() {
    let env = two_refs();
    env.ok(["put", "one", "team/other/copy"]);
    env.write("three/big.bin", Random::new(3).bytes(2_000_000));
    env.ok(["put", "three", "team/big/data"]);
    env.ok(["policy", "keep", "team/*", "--quota", "4MB"]);
    check!(env, env.store(["du"]), @"
    exit code: 0
    --- stdout
     stored   unique  shared  logical  refs  versions    quota    used  namespace
    2.00 MB  2.00 MB     0 B  2.00 MB     1         1  4.00 MB  50.0 %  team/big
     601 kB   200 kB  401 kB   900 kB     2         2                   project/demo
     401 kB      0 B  401 kB   400 kB     1         1  4.00 MB  10.0 %  team/other
    --- stderr
    ");
    check!(env, env.store(["du", "team/other", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"namespace":"team/other","refs":1,"versions":1,"bytes":400000,"version_bytes":400000,"stored_bytes":[SIZE],"unique":{"chunks":0,"bytes":0,"stored_bytes":[SIZE]},"shared":{"chunks":13,"bytes":400575,"stored_bytes":[SIZE]},"quota_bytes":4000000}
    --- stderr
    "#);
    // `summarize` has the same numbers for each namespace.
    let parsed = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let lines = env.ok(["du", "--json"]);
    assert_eq!(lines.lines().count(), 3);
    for line in lines.lines().map(parsed) {
        let whole = parsed(&env.ok(["summarize", line["namespace"].as_str().unwrap(), "--json"]));
        for field in [
            "refs",
            "versions",
            "bytes",
            "version_bytes",
            "unique",
            "shared",
        ] {
            assert_eq!(line[field], whole[field], "{line} {field}");
        }
    }
    check!(env, env.store(["du", "team/bih"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: team/bih: no such namespace
    hint: did you mean team/big? `store ls` lists all of them
    ");
    check!(env, env.store(["du", "team/big/data"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: team/big/data: expected a namespace, like project/NAME
    hint: `store summarize team/big/data` shows what a ref takes
    ");
}
