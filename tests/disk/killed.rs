//! Three processes put into one store at the same time and are killed repeatedly: every acknowledged version exists,
//! every existing version is complete, and the next put works.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::{Finished, Random, effort};

use crate::witness::{Witness, acknowledged};

const WRITERS: u64 = 3;
const TREES: u64 = 6;
const TREE_BYTES: usize = 3_000_000;

#[test]
fn puts_that_are_killed_lose_nothing_that_was_acknowledged() {
    let temp = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(&temp.path().join("store"), TREES, TREE_BYTES);
    let began = Instant::now();
    witness.put_ok("0", "project/killed/first");
    let typical = began.elapsed();
    let per_writer: Vec<(Vec<String>, usize)> = std::thread::scope(|scope| {
        let witness = &witness;
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || put_and_kill(witness, writer, typical)))
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let killed: usize = per_writer.iter().map(|(_, killed)| killed).sum();
    per_writer
        .into_iter()
        .for_each(|(versions, _)| witness.note_all(versions));
    println!("{} acknowledged, {killed} killed", witness.count());
    assert!(
        witness.count() > 1 && killed > 0,
        "{} acknowledged, {killed} killed",
        witness.count()
    );
    witness.check("after the kills");
    witness.put_ok("5", "project/killed/last");
    witness.check("after another put");
}

/// Puts trees in turn, and kills two of three puts at a random time. Returns the acknowledged versions, and the number
/// of kills.
fn put_and_kill(witness: &Witness, writer: u64, first: Duration) -> (Vec<String>, usize) {
    // The first put may have been slow, so the duration is updated by each put that ends before its kill.
    let mut typical = first;
    let mut random = Random::new(writer);
    let mut versions = Vec::new();
    let mut killed = 0;
    for round in 0..effort(9, 150) {
        let tree = random.below(TREES).to_string();
        let mut command = witness.command(&tree, &format!("project/killed/of-{writer}"));
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let wait = typical * 3 * u32::try_from(random.below(100)).unwrap() / 100;
        let begun = Instant::now();
        let finished = if round % 3 == 0 {
            let finished = finish(child);
            typical = typical.min(begun.elapsed());
            finished
        } else {
            let finished = kill(child, wait);
            if finished.code.is_some() {
                typical = typical.min(wait);
            }
            finished
        };
        assert!(!finished.stderr.contains("panicked"), "{finished}");
        killed += usize::from(finished.code.is_none());
        if finished.code.is_some() {
            assert_eq!(finished.code, Some(0), "{finished}");
        }
        versions.extend(acknowledged(&finished));
    }
    (versions, killed)
}

fn kill(mut child: Child, wait: Duration) -> Finished {
    std::thread::sleep(wait);
    child.kill().unwrap();
    finish(child)
}

fn finish(child: Child) -> Finished {
    child.wait_with_output().unwrap().into()
}
