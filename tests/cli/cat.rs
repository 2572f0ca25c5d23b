//! cat: writes one file to standard output.

use std::io::Read;
use std::process::Stdio;

use support::{Random, check, environment};

const REF: &str = "project/demo/data";

#[test]
fn a_file_of_many_chunks_and_every_kind_of_range() {
    let env = environment!();
    let bytes = [
        Random::new(3).bytes(700_000),
        Random::new(4).text(900_000),
        vec![0; 500_000],
    ]
    .concat();
    env.write("in/file", &bytes);
    env.ok(["put", "in", REF]);
    let len = bytes.len();
    for (range, expected) in [
        ("..", 0..len),
        ("0..0", 0..0),
        ("..1", 0..1),
        ("699999..700001", 699_999..700_001),
        ("1MB..1.5MB", 1_000_000..1_500_000),
        ("2000000..", 2_000_000..len),
        ("2099999..99GB", len - 1..len),
        ("2100000..", 0..0),
        ("2100000..6GB", 0..0),
    ] {
        let finished = env.store(["cat", "project/demo/data:file", "--range", range]);
        assert_eq!(finished.code, Some(0), "{range}: {}", finished.stderr);
        assert!(finished.stdout == bytes[expected], "{range}");
    }
}

#[test]
fn a_range_behind_the_end_is_refused() {
    let env = environment!();
    env.write("in/file", "0123456789");
    env.write("in/none", "");
    env.ok(["put", "in", REF]);
    assert_eq!(
        env.ok(["cat", "project/demo/data:none", "--range", ".."]),
        ""
    );
    assert_eq!(
        env.ok(["cat", "project/demo/data:file", "--range", "10.."]),
        ""
    );
    check!(env, env.store(["cat", "project/demo/data:file", "--range", "11.."]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: project/demo/data:file: the range begins at byte 11, and the file ends at 10
    hint: bytes are counted from 0
    ");
}

#[test]
fn a_ref_that_is_one_file() {
    let env = environment!();
    env.write("in", "whole");
    env.ok(["put", "in", REF]);
    assert_eq!(env.ok(["cat", REF]), "whole");
}

#[test]
fn what_is_no_file_is_named() {
    let env = environment!();
    env.write("in/dir/file", "text");
    std::os::unix::fs::symlink("dir/file", env.path("in/link")).unwrap();
    env.ok(["put", "in", REF]);
    check!(env, env.store(["cat", "project/demo/data:dir"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: project/demo/data:dir: expected a file, found a directory
    hint: `store ls project/demo/data:dir` lists it
    ");
    check!(env, env.store(["cat", "project/demo/data:link"]), @r#"
    exit code: 2
    --- stdout
    --- stderr
    error: project/demo/data:link: expected a file, found a symbolic link to "dir/file"
    hint: name the file that the link leads to
    "#);
    check!(env, env.store(["cat", "project/demo/data:dir/nothing"]), @"
    exit code: 3
    --- stdout
    --- stderr
    error: project/demo/data:dir/nothing: no such path in version 1
    hint: list what there is with `store ls project/demo/data:dir`
    ");
    check!(env, env.store(["cat", "project/demo/data:dir/file", "--range", "9..1"]), @"
    exit code: 2
    --- stdout
    --- stderr
    error: invalid value '9..1' for '--range <RANGE>': expected START..END with START at most END, like 0..100, 1MB.. or ..4KiB

    For more information, try '--help'.
    ");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let env = environment!();
    env.write("in", Random::new(5).bytes(3_000_000));
    env.ok(["put", "in", REF]);
    let mut command = env.command(["cat", REF]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[test]
fn a_closed_output_is_a_failure() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["put", "in", REF]);
    let run = |words: &[&str], output: &str| -> support::Finished {
        let script = format!("exec \"$@\" {output}");
        let command = support::under("sh", ["-c", &script, "sh"], &env.command(words));
        let mut command = command;
        command.output().unwrap().into()
    };
    let cat = ["cat", "project/demo/data:file"];
    for words in [&cat[..], &["ls"], &["info", "--json"]] {
        let finished = run(words, ">&-");
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(
            finished.stderr.contains("write to standard output"),
            "{finished}"
        );
        // Others open it for reading, too.
        for output in ["> /dev/null", "1<> /dev/null"] {
            assert_eq!(run(words, output).code, Some(0), "{words:?} {output}");
        }
    }
    // What was done is done, and its report is not data.
    assert_eq!(run(&["pin", "project/demo/data@1"], ">&-").code, Some(0));
}
