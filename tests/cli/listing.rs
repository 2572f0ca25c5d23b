//! ls and diff: what is there, and what is different.

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
    refs  versions  size  namespace
       1         2  34 B  project/demo
       1         1  10 B  team/tools
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
    newest  versions  size  put (UTC)            ref                message
         2         2  34 B  [TIME]  project/demo/data  second
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
    x     10 B  [TIME]  .
    --- stderr
    ");
    check!(env, env.store(["ls", "project/demo/data:nothing"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data:nothing: no such path in version 2
    hint: see what there is with `store ls project/demo/data`
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
    hint: see which there are with `store history project/demo/data`
    ");
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
