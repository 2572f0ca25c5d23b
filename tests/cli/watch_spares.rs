//! A watch limits its use of resources that the training needs: bytes per second, and space on a disk.

use serde_json::Value;
use support::{Random, environment};

use crate::watch::{REF, once};

/// Only an upper bound, so the result does not depend on the speed of the machine.
#[test]
fn no_more_bytes_are_written_in_a_second_than_it_was_told() {
    const LIMIT: u64 = 400_000;
    let env = environment!();
    env.ok(["init"]);
    env.write(
        "out/checkpoint-1/weights.bin",
        Random::new(1).bytes(1_200_000),
    );
    env.write("out/checkpoint-1/trainer_state.json", "{}");
    let done = once(&env, &["--json", "--bwlimit", "400k"]);
    assert_eq!(done.code, Some(0), "{done}");
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let (bytes, secs) = (&told["stored_bytes"], told["secs"].as_f64().unwrap());
    let bytes = bytes.as_u64().unwrap();
    assert!(bytes > 1_200_000, "{told}");
    assert!(bytes as f64 / secs < 2.0 * LIMIT as f64, "{told}");
}

/// Free space is known for disks only.
#[test]
fn room_is_not_kept_where_it_cannot_be_known() {
    let env = environment!();
    env.write("in/file", "text");
    env.ok(["put", "in", REF]);
    env.ok(["export", "one.bundle", REF]);
    for words in [
        &["watch", "out", REF, "--free", "1GB"][..],
        &["watch", "out", REF, "--free", "1GB", "--once"],
    ] {
        let refused = env.store([&["--store", "one.bundle"], words].concat());
        assert_eq!(refused.code, Some(2), "{refused}");
        let said = "is on no disk of this host, and how much is free there cannot be known";
        assert!(refused.stderr.contains(said), "{refused}");
        assert!(refused.stderr.contains("leave --free out"), "{refused}");
    }
}
