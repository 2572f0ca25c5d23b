//! ls and diff.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use support::{TestEnvironment, check, environment};

const REF: &str = "project/demo/data";

/// Two versions of one ref, and a ref of another namespace.
fn two_versions() -> TestEnvironment {
    let env = environment!();
    env.write("in/same.txt", "same");
    env.write("in/sub/deep/file", "before");
    env.write("in/gone/file", "gone");
    env.write("in/tool", "#!/bin/sh\n");
    symlink("same.txt", env.path("in/link")).unwrap();
    env.ok(["put", "in", REF, "--message", "first"]);
    env.write("in/sub/deep/file", "after, and longer");
    std::fs::remove_dir_all(env.path("in/gone")).unwrap();
    env.write("in/new/file", "new");
    std::fs::set_permissions(env.path("in/tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_file(env.path("in/link")).unwrap();
    symlink("sub", env.path("in/link")).unwrap();
    env.ok(["put", "in", REF, "--message", "second"]);
    env.ok(["put", "in/tool", "team/tools/one"]);
    env
}

#[test]
fn namespaces_and_refs_are_listed() {
    let env = two_versions();
    check!(env, env.store(["ls"]), @"
    exit code: 0
    --- stdout
    refs  versions  size  last use  namespace
       1         2  34 B            project/demo
       1         1  10 B            team/tools
    --- stderr
    ");
    check!(env, env.store(["ls", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"namespace":"project/demo","refs":1,"versions":2,"bytes":34}
    {"namespace":"team/tools","refs":1,"versions":1,"bytes":10}
    --- stderr
    "#);
    check!(env, env.store(["ls", "project/demo"]), @"
    exit code: 0
    --- stdout
    newest  versions  size  put (UTC)            last use  ref                message
         2         2  34 B  [TIME]            project/demo/data  second
    --- stderr
    ");
    check!(env, env.store(["ls", "project/demo", "--json"]), @r#"
    exit code: 0
    --- stdout
    {"ref":"project/demo/data","newest":2,"versions":2,"bytes":34,"time":"[TIME]","message":"second"}
    --- stderr
    "#);
    check!(env, env.store(["ls", "project/other"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/other: no such namespace
    hint: `store ls` lists the namespaces
    ");
}

#[test]
fn entries_are_listed() {
    let env = two_versions();
    check!(env, env.store(["ls", REF]), @"
    exit code: 0
    --- stdout
    link -> sub
    new/
    same.txt
    sub/
    tool
    --- stderr
    ");
    check!(env, env.store(["ls", "--long", "project/demo/data@1"]), @"
    exit code: 0
    --- stdout
    -      dir  [TIME]  gone/
    -     link  [TIME]  link -> same.txt
    -      4 B  [TIME]  same.txt
    -      dir  [TIME]  sub/
    -     10 B  [TIME]  tool
    --- stderr
    ");
    check!(env, env.store(["ls", "--recursive", "project/demo/data:sub"]), @"
    exit code: 0
    --- stdout
    deep/
    deep/file
    --- stderr
    ");
    check!(env, env.store(["ls", "--json", REF]), @r#"
    exit code: 0
    --- stdout
    {"path":"link","kind":"symlink","target":"sub"}
    {"path":"new","kind":"directory"}
    {"path":"same.txt","kind":"file","size":4}
    {"path":"sub","kind":"directory"}
    {"path":"tool","kind":"file","size":10,"executable":true}
    --- stderr
    "#);
    check!(env, env.store(["ls", "--long", "team/tools/one"]), @"
    exit code: 0
    --- stdout
    x     10 B  [TIME]  one
    --- stderr
    ");
    check!(env, env.store(["ls", "project/demo/data:nothing"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data:nothing: no such path in version 2
    hint: list what there is with `store ls project/demo/data`
    ");
}

#[test]
fn names_that_are_not_printable_stay_on_their_line() {
    let env = environment!();
    env.write(OsStr::from_bytes(b"in/two\nlines"), "");
    env.write(OsStr::from_bytes(b"in/caf\xe9"), "");
    env.ok(["put", "in", REF]);
    check!(env, env.store(["ls", REF]), @r"
    exit code: 0
    --- stdout
    caf\xe9
    two\nlines
    --- stderr
    ");
    check!(env, env.store(["ls", "--json", REF]), @r#"
    exit code: 0
    --- stdout
    {"path":"caf\\xe9","path_hex":"636166e9","kind":"file","size":0}
    {"path":"two\nlines","kind":"file","size":0}
    --- stderr
    "#);
    assert_eq!(
        env.store(["ls", "--null", REF]).stdout,
        b"caf\xe9\0two\nlines\0"
    );
}

#[test]
fn two_versions_are_compared() {
    let env = two_versions();
    check!(env, env.store(["diff", "project/demo/data@1", REF]), @"
    exit code: 0
    --- stdout
    - gone/
    - gone/file
    M link -> sub: target was same.txt
    + new/
    + new/file
    M sub/deep/file: content, 6 B to 17 B
    M tool: now executable
    --- stderr
    7 differences
    ");
    check!(env, env.store(["diff", "--json", "project/demo/data@1:sub", "project/demo/data:sub"]), @r#"
    exit code: 0
    --- stdout
    {"path":"deep/file","change":"changed","before":{"kind":"file","size":6},"after":{"kind":"file","size":17},"aspects":["content"]}
    --- stderr
    "#);
    check!(env, env.store(["diff", REF, "project/demo/data@2"]), @"
    exit code: 0
    --- stdout
    --- stderr
    no difference
    ");
    check!(env, env.store(["diff", REF, "project/demo/data@7"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data@7: no such version
    hint: list them with `store history project/demo/data`
    ");
}

/// Two versions of a file with different kept metadata.
pub(crate) fn two_kept(env: &TestEnvironment) {
    use std::os::unix::fs::PermissionsExt;
    let put = ["put", "in", REF, "--keep", "modes,xattrs"];
    let file = env.write("in/dir/file", "bytes");
    let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o640);
    env.ok(put);
    mode(0o4755);
    rustix::fs::setxattr(&file, "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    env.ok(put);
}

#[test]
fn what_two_versions_kept_is_compared() {
    let env = environment!();
    two_kept(&env);
    check!(env, env.store(["diff", "project/demo/data@1", REF]), @"
    exit code: 0
    --- stdout
    M dir/file: now executable, mode 0640 to 4755, attributes user.a
    --- stderr
    1 difference
    ");
    check!(env, env.store(["diff", "--json", "project/demo/data@1", REF]), @r#"
    exit code: 0
    --- stdout
    {"path":"dir/file","change":"changed","before":{"kind":"file","size":5,"mode":"0640","xattrs":[]},"after":{"kind":"file","size":5,"executable":true,"mode":"4755","xattrs":["user.a"]},"aspects":["executable","modes","xattrs"]}
    --- stderr
    "#);
}

#[test]
fn a_version_is_compared_with_a_directory() {
    let env = two_versions();
    check!(env, env.store(["diff", REF, "in"]), @"
    exit code: 0
    --- stdout
    --- stderr
    no difference
    ");
    env.write("in/same.txt", "SAME");
    env.write("in/extra.tmp", "");
    std::fs::remove_file(env.path("in/tool")).unwrap();
    env.write("in/tool/inside", "");
    check!(env, env.store(["diff", REF, "in", "--exclude", "*.tmp"]), @"
    exit code: 0
    --- stdout
    M same.txt: content, 4 B to 4 B
    M tool/: was a file
    + tool/inside
    --- stderr
    3 differences
    ");
    check!(env, env.store(["diff", REF, "nowhere"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: nowhere: there is no such directory or file
    hint: name a directory or file of this host, or a second ref, which begins with project/ or team/
    ");
}

#[test]
fn what_is_listed_is_sorted() {
    let env = environment!();
    for (name, len) in [("a", 20), ("b", 30), ("c", 10)] {
        env.write(format!("in/{name}"), vec![7; len]);
        env.ok([
            "put",
            &format!("in/{name}"),
            &format!("project/{name}/data"),
        ]);
        env.ok(["put", &format!("in/{name}"), &format!("team/all/{name}")]);
    }
    env.ok(["get", "team/all/c", "out"]);
    env.ok(["put", "in", "team/tree/x"]);
    let order = |arguments: &[&str]| {
        let lines = env.ok([&["--json", "ls"], arguments].concat());
        let names = lines.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = ["namespace", "ref", "path"];
            let name = fields
                .iter()
                .find_map(|field| line[field].as_str())
                .unwrap();
            name.to_owned()
        });
        names.collect::<Vec<_>>().join(" ")
    };
    for (arguments, expected) in [
        (&["team/all"] as &[&str], "team/all/a team/all/b team/all/c"),
        (
            &["team/all", "--reverse"],
            "team/all/c team/all/b team/all/a",
        ),
        (
            &["team/all", "--sort", "size"],
            "team/all/b team/all/a team/all/c",
        ),
        (
            &["team/all", "--sort", "size", "--reverse"],
            "team/all/c team/all/a team/all/b",
        ),
        (
            &["--sort", "size"],
            "team/all team/tree project/b project/a project/c",
        ),
        (&["team/tree/x", "--sort", "size"], "b a c"),
        (&["team/tree/x", "--reverse"], "c b a"),
    ] {
        assert_eq!(order(arguments), expected, "{arguments:?}");
    }
    check!(env, env.store(["ls", "team/tree/x", "--sort", "last-use"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: --sort last-use: the paths of a ref have no last use of their own
    hint: list refs by it: name a namespace, or nothing
    ");
}

#[test]
fn what_was_used_last_comes_first() {
    let env = environment!();
    env.write("in", "x");
    for name in ["a", "b", "c", "d"] {
        env.ok(["put", "in", &format!("team/all/{name}")]);
    }
    env.ok(["put", "in", "project/other/x"]);
    // A use a day ahead counts, since clocks differ. So `c` was used after everything of today.
    let uses = env.path("home/.local/share/store/uses");
    env.ok(["get", "team/all/c", "out"]);
    let use_of_c = std::fs::read_dir(&uses).unwrap().next().unwrap().unwrap();
    let name = use_of_c.file_name().into_string().unwrap();
    let (today, version) = name.split_at("2026-01-01".len());
    let today: jiff::civil::Date = today.parse().unwrap();
    let tomorrow = today.tomorrow().unwrap();
    std::fs::rename(use_of_c.path(), uses.join(format!("{tomorrow}{version}"))).unwrap();
    let lines = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let said = env.ok([&["ls", "--json", "--sort", "last-use"], arguments].concat());
        said.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let refs = lines(&["team/all"]);
    assert_eq!(refs[0]["ref"], "team/all/c");
    assert_eq!(refs[0]["last_use"], tomorrow.to_string());
    assert!(refs[1]["last_use"].is_null());
    assert_eq!(lines(&["team/all", "--reverse"])[3]["ref"], "team/all/c");
    let namespaces = lines(&[]);
    assert_eq!(namespaces[0]["namespace"], "team/all");
    assert_eq!(namespaces[0]["last_use"], tomorrow.to_string());
    assert_eq!(namespaces[1]["namespace"], "project/other");
}

/// The output of the command on a terminal with this many columns.
fn on_terminal(env: &TestEnvironment, columns: u16, words: &[&str]) -> String {
    use std::io::Read;
    let main = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
    rustix::pty::grantpt(&main).unwrap();
    rustix::pty::unlockpt(&main).unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&main, size).unwrap();
    let name = rustix::pty::ptsname(&main, Vec::new()).unwrap();
    let name = OsStr::from_bytes(name.as_bytes());
    let open = || std::fs::File::options().write(true).open(name).unwrap();
    let mut command = env.command(words);
    let mut child = command.stdout(open()).spawn().unwrap();
    drop(command);
    let mut printed = Vec::new();
    // The read ends with an error after the other side is closed.
    let _ended = std::fs::File::from(main).read_to_end(&mut printed);
    assert!(child.wait().unwrap().success());
    String::from_utf8(printed).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_long_message_is_cut_on_a_terminal_and_nowhere_else() {
    let env = environment!();
    env.write("in/a", "a");
    let long = "w\u{f6}rter ".repeat(60);
    let long = long.trim();
    env.ok(["put", "in", REF, "--message", long]);
    for words in [&["ls", "project/demo"][..], &["history", REF]] {
        let cut = on_terminal(&env, 120, words);
        let lines: Vec<&str> = cut.lines().collect();
        assert_eq!(lines.len(), 2, "{cut}");
        assert!(lines[1].chars().count() <= 120, "{cut}");
        assert!(
            lines[1].contains("w\u{f6}rter w") && lines[1].ends_with('\u{2026}'),
            "{cut}"
        );
        let whole = env.ok(words);
        assert!(whole.contains(long), "{whole}");
        let json = on_terminal(&env, 120, &[words, &["--json"]].concat());
        assert!(json.contains(long), "{json}");
        // On a terminal of unknown width, nothing is cut.
        assert!(on_terminal(&env, 0, words).contains(long));
    }
}

#[test]
fn a_single_file_is_listed_by_its_name() {
    let env = environment!();
    env.write("in/d/f", "x");
    env.ok(["put", "in", "project/demo/data"]);
    env.ok(["put", "in/d/f", "project/demo/file"]);
    assert_eq!(env.ok(["ls", "project/demo/data:d/f"]), "f\n");
    assert_eq!(env.ok(["ls", "project/demo/file"]), "file\n");
    assert_eq!(env.ok(["ls", "-0", "project/demo/data:d/f"]), "f\0");
    assert!(
        env.ok(["ls", "-l", "project/demo/data:d/f"])
            .ends_with(" f\n")
    );
}
