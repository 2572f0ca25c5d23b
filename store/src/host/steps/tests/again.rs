//! Published steps that are written again, files that come after a marker, and how long a step has stood still.

use super::*;

/// Writes files of a step that was published, and returns what is told of them: `Ok` if they count.
fn seen_of(
    dir: &Path,
    age: &StepAge,
    rule: StepRule,
    span: u64,
) -> std::result::Result<(), NotYet> {
    let mut steps = Steps::new(dir, rule);
    steps.published(&BTreeMap::from([("checkpoint-8".to_owned(), *age)]));
    steps.look(at(0)).unwrap();
    let mut seen = steps.look(at(span)).unwrap();
    match seen.finished.pop() {
        Some(_) => Ok(()),
        None => Err(seen.unfinished.pop().unwrap().why),
    }
}

#[test]
fn a_published_step_counts_again_once_all_of_it_was_written_or_it_rests_for_long() {
    for (marker, done) in [("trainer_state.json", None), ("DONE", Some("DONE"))] {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join("checkpoint-8").join(name);
        let rule = StepRule {
            done: done.map(Into::into),
            late: at(5),
            rewritten: at(300),
            ..rule()
        };
        let write_all = |names: &[&str], secs: u64| {
            for name in names.iter().chain(&[marker]) {
                write(&file(name), secs.to_string());
                age(&file(name), secs);
            }
        };
        let all = [
            "config.json",
            "model.bin",
            "optimizer.bin",
            "rng_state_1.bin",
        ];
        // A change time cannot be set, so it must be that of an earlier moment.
        write_all(&all, 5000);
        let first = Steps::all(dir.path(), &rule).unwrap().pop().unwrap();
        let published = StepAge::of(&first);
        std::thread::sleep(Duration::from_millis(50));
        for left in 1..all.len() {
            let mut names = all.to_vec();
            let name = names.remove(left);
            write_all(&all, 5000);
            let again = Steps::all(dir.path(), &rule).unwrap().pop().unwrap();
            let published = StepAge::of(&again);
            std::thread::sleep(Duration::from_millis(50));
            write_all(&names, 100);
            let seen = |span| seen_of(dir.path(), &published, rule.clone(), span);
            assert_eq!(seen(4), Err(NotYet::Late), "{name}");
            let (file, span) = (name.as_bytes().to_vec(), at(300));
            assert_eq!(seen(299), Err(NotYet::Rewritten { file, span }), "{name}");
            assert_eq!(seen(300), Ok(()), "a trainer may leave {name} as it is");
        }
        // What other ranks write may come shortly after the marker; what rank 0 writes may not.
        let seen = |span| seen_of(dir.path(), &published, rule.clone(), span);
        write_all(&all, 1000);
        age(&file("optimizer.bin"), 990);
        assert_eq!(seen(4), Err(NotYet::Late));
        assert_eq!(seen(5), Ok(()));
        age(&file("optimizer.bin"), 600);
        assert!(matches!(seen(999), Err(NotYet::Older { .. })));
        age(&file("optimizer.bin"), 1000);
        age(&file("model.bin"), 990);
        assert!(matches!(seen(999), Err(NotYet::Older { .. })));
    }
}

#[test]
fn times_tell_how_long_a_step_has_stood_still_if_they_are_trusted() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("any/w"), "w");
    let mut steps = Steps::new(
        dir.path(),
        StepRule {
            settled: Some(at(600)),
            ..rule()
        },
    );
    let wall = |secs: i64| {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let secs = i64::try_from(since).unwrap() + secs;
        Time { secs, nanos: 0 }
    };
    steps.trust_times(wall(590));
    for now in 0..3 {
        assert!(steps.look(at(now)).unwrap().finished.is_empty(), "{now}");
    }
    steps.trust_times(wall(610));
    assert_eq!(steps.look(at(3)).unwrap().finished.len(), 1);
    // Two looks must agree all the same.
    write(&dir.path().join("any/w"), "other");
    assert!(steps.look(at(4)).unwrap().finished.is_empty());
    assert_eq!(steps.look(at(5)).unwrap().finished.len(), 1);
}

/// Only transformers lets other ranks write after the marker.
#[test]
fn a_marker_that_others_may_write_after_is_waited_upon() {
    for (step, files) in writers() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in &files {
            match bytes.is_empty() {
                true => {
                    let from = dir.path().join("500.orbax-checkpoint-tmp-7");
                    fs::rename(from, dir.path().join(name)).unwrap();
                }
                false => write(&dir.path().join(name), bytes),
            }
        }
        let late = StepRule {
            late: at(5),
            ..rule()
        };
        let mut steps = Steps::new(dir.path(), late);
        let looks: Vec<usize> = [0, 1, 4, 5]
            .map(|now| steps.look(at(now)).unwrap().finished.len())
            .into();
        let expected = match step {
            "checkpoint-500" => [0, 0, 0, 1],
            _ => [0, 1, 1, 1],
        };
        assert_eq!(looks, expected, "{step}");
    }
}

/// A writer may die within a moment of its marker, when it writes the same step again.
#[test]
fn a_rewrite_that_breaks_off_right_after_the_marker_is_never_finished() {
    for (step, files) in writers() {
        let is_renamed = files.iter().any(|(_, bytes)| bytes.is_empty());
        let (marker, others) = files.split_last().unwrap();
        let inside: Vec<_> = (others.iter())
            .filter(|(name, _)| name.starts_with(step))
            .collect();
        if is_renamed || step == "500" {
            continue;
        }
        for is_named in [false, true] {
            for count in 1..=inside.len() {
                let dir = tempfile::tempdir().unwrap();
                let done = format!("{step}/DONE");
                let last = match is_named {
                    true => dir.path().join(&done),
                    false => dir.path().join(marker.0),
                };
                let rule = StepRule {
                    done: is_named.then(|| "DONE".into()),
                    ..rule()
                };
                for (name, bytes) in others {
                    write(&dir.path().join(name), bytes);
                }
                write(&last, &marker.1);
                assert_eq!(finished(dir.path(), rule.clone()), [step], "{step}");
                std::thread::sleep(Duration::from_millis(20));
                for (name, bytes) in inside.iter().take(count) {
                    write(&dir.path().join(name), bytes);
                }
                let what = format!("{count} files of {step}, named: {is_named}");
                assert!(finished(dir.path(), rule.clone()).is_empty(), "{what}");
                // It counts with its next marker.
                std::thread::sleep(Duration::from_millis(20));
                write(&last, &marker.1);
                assert_eq!(finished(dir.path(), rule), [step], "{what}");
            }
        }
    }
}

/// A callback of the job may add files of its own once the trainer has written its marker.
#[test]
fn a_file_that_is_added_right_after_the_marker_does_not_make_it_wait() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join("checkpoint-8").join(name);
    for name in ["model.bin", "trainer_state.json", "DONE"] {
        write(&file(name), "1");
        std::thread::sleep(Duration::from_millis(20));
    }
    write(&file("adapter.json"), "{}");
    let mut by_user = rule();
    by_user.done = Some("DONE".into());
    assert_eq!(finished(dir.path(), rule()), ["checkpoint-8"]);
    // Whoever names the last file means that nothing comes after it.
    assert!(finished(dir.path(), by_user).is_empty());
}

/// A published step of which all was written again counts as soon as another rank has written its part, even after the
/// marker. What only rank 0 writes must not come after it.
#[test]
fn what_another_rank_writes_again_may_follow_the_marker() {
    for (marker, done) in [("trainer_state.json", None), ("DONE", Some("DONE"))] {
        let dir = tempfile::tempdir().unwrap();
        let rule = StepRule {
            done: done.map(Into::into),
            late: at(5),
            rewritten: at(300),
            ..rule()
        };
        let write_now = |name: &str| {
            write(&dir.path().join("checkpoint-8").join(name), "1");
            std::thread::sleep(Duration::from_millis(20));
        };
        let write_all = || ["optimizer.bin", "model.bin", marker].map(write_now);
        write_all();
        let first = Steps::all(dir.path(), &rule).unwrap().pop().unwrap();
        let published = StepAge::of(&first);
        let seen = || seen_of(dir.path(), &published, rule.clone(), 999);
        write_all();
        write_now("optimizer.bin");
        assert_eq!(seen(), Ok(()), "{marker}");
        write_now("model.bin");
        assert!(matches!(seen(), Err(NotYet::Older { .. })), "{marker}");
        write_now("optimizer.bin");
        assert!(matches!(seen(), Err(NotYet::Older { .. })), "{marker}");
    }
}
