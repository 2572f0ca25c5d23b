//! Steps as frameworks write them, file by file: a step is finished when the last of its files exists, and not before.

use std::fs;
use std::path::Path;

use super::*;
use crate::error::ErrorKind;

const QUIET: Duration = Duration::from_secs(1);
/// An empty pickle.
const PICKLE: &[u8] = b"\x80\x02N.";

fn at(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn archive() -> Vec<u8> {
    [&b"PK\x03\x04"[..], &[7; 300], b"PK\x05\x06", &[0; 18]].concat()
}

fn safetensors() -> Vec<u8> {
    let head =
        br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}"#;
    [&(head.len() as u64).to_le_bytes()[..], head, &[1; 8]].concat()
}

fn rule() -> StepRule {
    StepRule {
        quiet: QUIET,
        ..StepRule::default()
    }
}

/// Names of the steps that are finished once nothing changes any more.
fn finished(dir: &Path, rule: StepRule) -> Vec<String> {
    let mut steps = Steps::new(dir, rule);
    steps.look(at(0)).unwrap();
    let seen = steps.look(at(1000)).unwrap();
    let name = |step: Step| {
        step.path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned()
    };
    seen.finished.into_iter().map(name).collect()
}

/// A file and its bytes.
type Written = (&'static str, Vec<u8>);

/// Files in the order in which a framework writes them, relative to the directory of steps. Empty bytes mean that a
/// directory is renamed from the first to the second name.
fn writers() -> Vec<(&'static str, Vec<Written>)> {
    vec![
        (
            "checkpoint-500",
            vec![
                ("checkpoint-500/model.safetensors", safetensors()),
                ("checkpoint-500/optimizer.pt", archive()),
                ("checkpoint-500/rng_state_0.pth", archive()),
                (
                    "checkpoint-500/trainer_state.json",
                    br#"{"global_step": 500}"#.to_vec(),
                ),
            ],
        ),
        (
            "global_step500",
            vec![
                ("latest", b"global_step400".to_vec()),
                ("global_step500/mp_rank_00_model_states.pt", archive()),
                ("global_step500/zero_pp_rank_0_optim_states.pt", archive()),
                ("latest", b"global_step500".to_vec()),
            ],
        ),
        (
            "iter_0000500",
            vec![
                ("latest_checkpointed_iteration.txt", b"400".to_vec()),
                ("iter_0000500/__0_0.distcp", archive()),
                ("iter_0000500/.metadata", PICKLE.to_vec()),
                ("iter_0000500/metadata.json", b"{}".to_vec()),
                ("latest_checkpointed_iteration.txt", b"500\n".to_vec()),
            ],
        ),
        (
            "step-500",
            vec![
                ("step-500/__0_0.distcp", archive()),
                ("step-500/.metadata.tmp", PICKLE.to_vec()),
                ("step-500/.metadata", PICKLE.to_vec()),
            ],
        ),
        (
            "500",
            vec![
                (
                    "500.orbax-checkpoint-tmp-7/_CHECKPOINT_METADATA",
                    b"{}".to_vec(),
                ),
                ("500.orbax-checkpoint-tmp-7/params/manifest.ocdbt", vec![1]),
                ("500", Vec::new()),
            ],
        ),
    ]
}

#[test]
fn a_writer_that_dies_at_any_point_leaves_nothing_finished() {
    for (step, files) in writers() {
        for dies_after in 0..=files.len() {
            let dir = tempfile::tempdir().unwrap();
            for (name, bytes) in files.iter().take(dies_after) {
                match bytes.is_empty() {
                    true => {
                        let from = dir.path().join("500.orbax-checkpoint-tmp-7");
                        fs::rename(from, dir.path().join(name)).unwrap();
                    }
                    false => write(&dir.path().join(name), bytes),
                }
            }
            let expected = match dies_after == files.len() {
                true => vec![step.to_owned()],
                false => Vec::new(),
            };
            assert_eq!(
                finished(dir.path(), rule()),
                expected,
                "{step}, {dies_after} files"
            );
            let settled = StepRule {
                settled: Some(at(60)),
                ..rule()
            };
            // A known writer decides alone. A writer is unknown before its first own file.
            let found = finished(dir.path(), settled);
            let is_known = step != "step-500" || dies_after == files.len();
            assert!(
                !is_known || found == expected,
                "{step}, {dies_after} files: {found:?}"
            );
        }
    }
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_not_whole() {
    for (name, whole) in [
        ("model.safetensors", safetensors()),
        ("optimizer.pt", archive()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some").join(name);
        let settled = || StepRule {
            settled: Some(at(60)),
            ..rule()
        };
        for len in 0..whole.len() {
            write(&path, whole.get(..len).unwrap());
            assert!(
                finished(dir.path(), settled()).is_empty(),
                "{name}: {len} bytes"
            );
            assert_eq!(
                unfinished(dir.path(), settled()),
                [format!(
                    "some: not finished: {name} is cut off, or cannot be read"
                )]
            );
        }
        write(&path, &whole);
        assert_eq!(finished(dir.path(), settled()), ["some"]);
        // A file that was allocated with its final length.
        let mut begun = whole.clone();
        begun.split_at_mut(whole.len() / 2).1.fill(0);
        write(&path, &begun);
        assert!(finished(dir.path(), settled()).is_empty(), "{name}");
        begun.fill(0);
        write(&path, &begun);
        assert!(finished(dir.path(), settled()).is_empty(), "{name}");
    }
}

/// Why steps are unfinished once nothing changes any more.
fn unfinished(dir: &Path, rule: StepRule) -> Vec<String> {
    let mut steps = Steps::new(dir, rule);
    steps.look(at(0)).unwrap();
    let seen = steps.look(at(1000)).unwrap();
    let told = seen.unfinished.iter();
    told.map(|one| format!("{}: {}", one.name, one.why))
        .collect()
}

/// Sets the modification time of a file to this many seconds ago.
fn age(path: &Path, secs: u64) {
    let file = fs::File::options().append(true).open(path).unwrap();
    let time = std::time::SystemTime::now() - at(secs);
    file.set_modified(time).unwrap();
}

#[test]
fn the_metadata_of_torch_counts_once_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("any/.metadata");
    write(&dir.path().join("any/__0_0.distcp"), "weights");
    for len in 0..PICKLE.len() {
        write(&marker, &PICKLE[..len]);
        assert_eq!(finished(dir.path(), rule()), [""; 0], "{len}");
    }
    write(&marker, PICKLE);
    assert_eq!(finished(dir.path(), rule()), ["any"]);
}

/// A checkpoint still has its marker after rewriting it was interrupted while nobody watched.
#[test]
fn a_marker_that_is_older_than_another_file_says_nothing() {
    let stale = [
        (
            "checkpoint-500",
            "checkpoint-500/trainer_state.json",
            &b"{}"[..],
        ),
        ("global_step500", "latest", b"global_step500"),
        ("iter_0000500", "latest_checkpointed_iteration.txt", b"500"),
        ("any", "any/.metadata", PICKLE),
    ];
    for (step, marker, text) in stale {
        let dir = tempfile::tempdir().unwrap();
        let (marker, file) = (
            dir.path().join(marker),
            dir.path().join(step).join("deep/w"),
        );
        write(&file, "anew");
        write(&marker, text);
        age(&marker, 60);
        let own = dir.path().join(step).join("rng_state_3.pth");
        write(&own, archive());
        age(&file, 90);
        assert_eq!(finished(dir.path(), rule()), [step], "{step}");
        age(&file, 30);
        let name = marker.file_name().unwrap().to_str().unwrap();
        let told = format!(
            "{step}: not finished: {name} is older than deep/w, so it was being rewritten and was not finished"
        );
        assert_eq!(unfinished(dir.path(), rule()), [told]);
        let settled = StepRule {
            settled: Some(at(500)),
            ..rule()
        };
        assert_eq!(finished(dir.path(), settled), [step], "{step}");
        age(&marker, 20);
        assert_eq!(finished(dir.path(), rule()), [step], "{step}");
    }
}

/// The writer named the step before, and names another one now: the step is still finished.
#[test]
fn a_step_that_a_later_one_came_after_is_finished_if_it_was_seen() {
    for (first, second, marker, texts) in [
        (
            "global_step1",
            "global_step2",
            "latest",
            ["global_step1", "global_step2"],
        ),
        (
            "iter_0000001",
            "iter_0000002",
            "latest_checkpointed_iteration.txt",
            ["1", "2"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join(marker);
        write(&dir.path().join(first).join("w"), "1");
        write(&marker, texts[0]);
        let mut steps = Steps::new(dir.path(), rule());
        let seen = steps.look(at(0)).unwrap();
        assert_eq!(seen.unfinished.len(), 1);
        write(&dir.path().join(second).join("w"), "2");
        write(&marker, texts[1]);
        let seen = steps.look(at(1)).unwrap();
        assert_eq!(seen.finished.first().unwrap().name, first);
        for now in 2..4 {
            let seen = steps.look(at(now)).unwrap();
            let names: Vec<&str> = seen.finished.iter().map(|step| &*step.name).collect();
            assert_eq!(names, [first, second]);
            Steps::check(dir.path(), &rule(), seen.finished.first().unwrap()).unwrap();
        }
        // A new watch does not know whether it was named: it may be half rewritten.
        let mut steps = Steps::new(dir.path(), rule());
        for now in 0..3 {
            assert_eq!(steps.look(at(now)).unwrap().passed, [first]);
        }
        // If something in it changes, it is no longer what was seen.
        let mut steps = Steps::new(dir.path(), rule());
        write(&marker, texts[0]);
        steps.look(at(0)).unwrap();
        write(&dir.path().join(first).join("w"), "other");
        write(&marker, texts[1]);
        assert_eq!(steps.look(at(1)).unwrap().passed, [first]);
        // If its coordinator wrote that it is complete, nothing else is needed.
        let metadata = dir.path().join(first).join(".metadata");
        write(&metadata, PICKLE);
        write(&marker, texts[1]);
        let mut steps = Steps::new(dir.path(), rule());
        steps.look(at(0)).unwrap();
        let seen = steps.look(at(1)).unwrap();
        assert_eq!(seen.passed, [""; 0]);
        assert_eq!(seen.finished.len(), 2);
        // Unless something in it is newer than that.
        age(&metadata, 60);
        let mut steps = Steps::new(dir.path(), rule());
        steps.look(at(0)).unwrap();
        assert_eq!(steps.look(at(1)).unwrap().passed, [first]);
    }
}

#[test]
fn a_step_must_stand_still_and_is_looked_at_again_before_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("checkpoint-1/trainer_state.json");
    write(&state, "{}");
    let mut steps = Steps::new(dir.path(), rule());
    assert!(
        steps.look(at(5)).unwrap().finished.is_empty(),
        "one look is none"
    );
    write(&dir.path().join("checkpoint-1/rng_state_1.pth"), archive());
    assert!(
        steps.look(at(6)).unwrap().finished.is_empty(),
        "another rank wrote"
    );
    let seen = steps.look(at(7)).unwrap();
    let step = seen.finished.first().unwrap();
    Steps::check(dir.path(), &rule(), step).unwrap();
    write(&state, "{\"a\": 1}");
    let error = Steps::check(dir.path(), &rule(), step).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    fs::remove_file(&state).unwrap();
    assert!(Steps::check(dir.path(), &rule(), step).is_err());
}

#[test]
fn a_file_of_ones_own_decides_and_unknown_writers_need_a_word() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("epoch-1/weights"), "w");
    write(&dir.path().join("epoch-2/weights"), "w");
    write(&dir.path().join("epoch-2/DONE"), "");
    write(&dir.path().join("checkpoint-3/trainer_state.json"), "{}");
    write(&dir.path().join(".hidden/DONE"), "");
    write(&dir.path().join("file"), "");
    let done = StepRule {
        done: Some("DONE".into()),
        ..rule()
    };
    assert_eq!(finished(dir.path(), done), ["epoch-2"]);
    let mut steps = Steps::new(dir.path(), rule());
    let seen = steps.look(at(0)).unwrap();
    assert_eq!(seen.unknown, ["epoch-1", "epoch-2"]);
    let unfinished: Vec<&str> = seen.unfinished.iter().map(|one| &*one.name).collect();
    assert_eq!(unfinished, ["checkpoint-3"]);
    let all = Steps::all(dir.path(), &rule()).unwrap();
    assert_eq!(all.len(), 3);
    let again = Steps::all(dir.path(), &rule()).unwrap();
    assert_eq!(all, again, "titles stay the same");
}

#[test]
fn a_step_that_rests_is_found_again_and_one_that_was_written_anew_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("checkpoint-1/trainer_state.json");
    write(&state, "{}");
    let mut steps = Steps::new(dir.path(), rule());
    steps.look(at(0)).unwrap();
    let first = steps.look(at(1)).unwrap().finished;
    assert_eq!(steps.look(at(2)).unwrap().finished, first);
    fs::write(dir.path().join("checkpoint-1/rng_state.pth"), archive()).unwrap();
    fs::write(&state, "{}").unwrap();
    assert!(steps.look(at(3)).unwrap().finished.is_empty());
    let second = steps.look(at(4)).unwrap().finished;
    assert_ne!(second, first);
    fs::remove_file(&state).unwrap();
    assert!(steps.look(at(5)).unwrap().finished.is_empty());
}

/// What is written again, and what comes late.
mod again;

/// A copy that keeps times, with the marker first: nothing says whether it is over.
#[test]
fn a_step_that_is_copied_behind_its_marker_stands_still_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("step/w");
    write(&dir.path().join("step/.metadata"), PICKLE);
    age(&dir.path().join("step/.metadata"), 100);
    std::thread::sleep(Duration::from_millis(100));
    write(&file, "w");
    age(&file, 200);
    let rule = StepRule {
        quiet: Duration::from_millis(50),
        rewritten: at(300),
        ..StepRule::default()
    };
    let mut steps = Steps::new(dir.path(), rule.clone());
    for now in [0, 100, 299] {
        assert!(steps.look(at(now)).unwrap().finished.is_empty(), "{now}");
    }
    assert_eq!(steps.look(at(300)).unwrap().finished.len(), 1);
    // What rsync keeps of a file when it is broken off.
    let epoch = std::time::SystemTime::UNIX_EPOCH + Duration::from_millis(753);
    let opened = fs::File::options().append(true).open(&file).unwrap();
    opened.set_modified(epoch).unwrap();
    assert!(finished(dir.path(), rule.clone()).is_empty());
    let settled = StepRule {
        settled: Some(at(500)),
        ..rule
    };
    assert_eq!(finished(dir.path(), settled), ["step"]);
}
