//! Compile caches of `store run`: pulled before the command, pushed after it.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::{Finished, environment, with_mounts};

use crate::run::{line, run, signal, start};

/// A layout with a Neuron cache in `base/neuron`, for the configuration.
pub(crate) fn neuron_layout(own: &str, others: &str) -> String {
    format!(
        "[layout.trn]\nproject = \"project\"\nteam = \"team\"\n[layout.trn.env]\nNEURON = \"{{base}}/neuron\"\n\
         [layout.trn.compile.neff]\ndir = \"{{base}}/neuron\"\npull = [{others}]\npush = \"{own}\"\n"
    )
}

/// The beginning of a NEFF for `printf`: 24 bytes of header, and 288 of data.
pub(crate) const HEAD: &str = r"\2\0\0\0\0\0\0\0\30\0\0\0\0\0\0\0\40\1\0\0\0\0\0\0";

/// The shell script of a job that compiles a key.
pub(crate) fn compile(key: &str) -> String {
    format!(
        "d=$NEURON/neuronxcc-2.21/MODULE_{key}; mkdir -p $d; touch $d/model.done; {{ printf '{HEAD}'; seq 99; }} > $d/model.neff"
    )
}

/// The configuration file of an environment.
pub(crate) const CONFIG: &str = "home/.config/store/config.toml";

/// A job that is asked to stop has time to push compiled entries, as it has for its cache.
#[test]
fn compile_caches_of_a_job_that_is_asked_to_end_are_pushed() {
    let env = environment!();
    env.write(CONFIG, neuron_layout("project/llama/neff", ""));
    let script = format!(
        "{}; trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done",
        compile("1+a")
    );
    let mut child = start(&env, &["--layout", "trn"], &script);
    assert_eq!(line(&mut child), "ready\n");
    signal(&child, rustix::process::Signal::TERM);
    let done: Finished = child.wait_with_output().unwrap().into();
    assert_eq!(done.code, Some(3), "{done}");
    assert!(done.stderr.contains("1 added by it, 1 pushed"), "{done}");
    let listed = env.ok(["ls", "-r", "project/llama/neff"]);
    assert!(listed.contains("MODULE_1+a/model.neff"), "{listed}");
}

/// Whether the file system of a directory updates access times.
fn tells_of_reading(dir: &Path) -> bool {
    let path = dir.join("probe");
    fs::write(&path, "x").unwrap();
    let file = fs::File::options().append(true).open(&path).unwrap();
    let before = SystemTime::now() - Duration::from_secs(7200);
    file.set_times(fs::FileTimes::new().set_accessed(before))
        .unwrap();
    fs::read(&path).unwrap();
    let after = path.metadata().unwrap().accessed().unwrap();
    after > before + Duration::from_secs(60)
}

/// An existing or pulled entry saves no compile until it is read.
#[test]
fn a_hit_is_an_entry_that_the_command_read() {
    let env = environment!();
    let own = "project/one/neff";
    env.write(CONFIG, neuron_layout(own, &format!("\"{own}\"")));
    let script = ["1+a", "2+a", "3+a"].map(compile).join("; ");
    let first = env.store(run(&["--layout", "trn"], &script));
    assert_eq!(first.code, Some(0), "{first}");
    let read = |key: &str| format!("cat $NEURON/neuronxcc-2.21/MODULE_{key}/model.neff");
    let script = format!(
        "ls -lR $NEURON; {0}; {0}; {1}; {2}",
        read("1+a"),
        compile("4+a"),
        read("4+a")
    );
    let command = ["--", "/bin/sh", "-c", &script];
    for (base, host, told) in [
        ("other", "home-b", (3, 3, 1, 1, 1)),
        // An entry that existed before is a hit, but no ref has saved a compile.
        ("base", "home", (4, 1, 2, 1, 0)),
    ] {
        let words = [
            "--json",
            "run",
            "--project",
            "llama",
            "--base",
            base,
            "--layout",
            "trn",
        ];
        let mut second = env.command(words.iter().chain(&command));
        second
            .env("HOME", env.path(host))
            .env("PATH", "/usr/bin:/bin")
            .env("STORE_URL", env.path("home/.local/share/store"));
        env.write(
            format!("{host}/.config/store/config.toml"),
            neuron_layout(own, &format!("\"{own}\"")),
        );
        let done: Finished = second.output().unwrap().into();
        assert_eq!(done.code, Some(0), "{done}");
        let report = done.stderr.lines().find(|line| line.contains("misses"));
        let report: Value = serde_json::from_str(report.unwrap()).unwrap();
        let (there, pulled, hits, avoided, misses) = told;
        let (hits, avoided) = match tells_of_reading(&env.root()) {
            true => (hits.into(), avoided.into()),
            false => (Value::Null, Value::Null),
        };
        let expected = json!({
            "there": there, "pulled": pulled, "hits": hits, "avoided": avoided, "misses": misses,
        });
        for (field, expected) in expected.as_object().unwrap() {
            assert_eq!(&report[field], expected, "{base}: {field}: {done}");
        }
    }
}

/// Without access times, reads are unknown.
#[test]
fn where_the_file_system_does_not_tell_of_reading_nothing_is_said_of_hits() {
    let env = environment!();
    let own = "project/one/neff";
    env.write(CONFIG, neuron_layout(own, &format!("\"{own}\"")));
    env.ok(run(&["--layout", "trn"], &compile("1+a")));
    fs::create_dir_all(env.path("mounted")).unwrap();
    let words = [
        "--json",
        "run",
        "--project",
        "one",
        "--base",
        "mounted/base",
        "--layout",
        "trn",
        "--",
        "/bin/sh",
        "-c",
        "cat $NEURON/*/*/model.neff",
    ];
    let mounts = "mount -t tmpfs -o noatime tmpfs mounted";
    let done: Finished = with_mounts(mounts, &env.command(words))
        .output()
        .unwrap()
        .into();
    assert_eq!(done.code, Some(0), "{done}");
    let told = "\"there\":1,\"pulled\":1,\"hits\":null,\"avoided\":null,\"misses\":0";
    assert!(done.stderr.contains(told), "{done}");
}

/// Two jobs of two projects: the second one finds what the first one compiled, and adds its own entries.
#[test]
fn compile_caches_are_pulled_before_a_job_and_pushed_after_it() {
    let env = environment!();
    env.write(
        CONFIG,
        neuron_layout("project/one/neff", "\"project/one/neff\""),
    );
    let script = compile("1+a");
    let first = env.store(run(&["--layout", "trn"], &script));
    assert_eq!(first.code, Some(0), "{first}");
    let told = "0 entries there before the command (0 pulled), 0 read by it (0 compiles avoided by what was pulled), \
                1 added by it, 1 pushed";
    assert!(first.stderr.contains(told), "{first}");

    env.write(
        CONFIG,
        neuron_layout("project/two/neff", "\"project/one/neff\""),
    );
    let script = format!(
        "test -e $NEURON/neuronxcc-2.21/MODULE_1+a/model.done && {}",
        compile("2+a")
    );
    let command = ["--", "/bin/sh", "-c", &script];
    let words = [
        "run",
        "--project",
        "two",
        "--base",
        "other",
        "--layout",
        "trn",
    ];
    let second = env.store(words.iter().chain(&command));
    assert_eq!(second.code, Some(0), "{second}");
    // The command only checked that the entry exists.
    for told in [
        "1 entry there before the command (1 pulled), ",
        "1 added by it, 2 pushed",
    ] {
        assert!(second.stderr.contains(told), "{second}");
    }

    // Both runs are recorded.
    let told = fs::read_to_string(env.path("home/.local/state/store/compiles.jsonl")).unwrap();
    assert_eq!(told.matches("\"added\":1}").count(), 2, "{told}");
    assert!(
        told.contains(
            "\"refs\":[\"project/one/neff\",\"project/two/neff\"],\"there\":1,\"pulled\":1"
        )
    );

    // A ref that must not be pushed to is reported before the command starts.
    env.write(CONFIG, neuron_layout("team/speech/neff", ""));
    let refused = env.store(run(&["--layout", "trn"], "touch started"));
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(!env.path("started").exists());
}
