//! Compile caches of commands that run with the caches of their project: pulled before, pushed after.

use std::fs;

use support::{Finished, environment};

use crate::run::{line, run, signal, start};

/// A layout with a Neuron cache in `base/neuron`, for the configuration.
pub(crate) fn neuron_layout(own: &str, others: &str) -> String {
    format!(
        "[layout.trn]\nproject = \"project\"\nteam = \"team\"\n[layout.trn.env]\nNEURON = \"{{base}}/neuron\"\n\
         [layout.trn.compile.neff]\ndir = \"{{base}}/neuron\"\npull = [{others}]\npush = \"{own}\"\n"
    )
}

/// What a job runs to compile a key.
pub(crate) fn compile(key: &str) -> String {
    format!(
        "d=$NEURON/neuronxcc-2.21/MODULE_{key}; mkdir -p $d; touch $d/model.done; seq 99 > $d/model.neff"
    )
}

/// Where the configuration of an environment is.
pub(crate) const CONFIG: &str = "home/.config/store/config.toml";

/// A job that is asked to end has time to give what it compiled to others, as it has for its cache.
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

/// Two jobs of two projects: the second one finds what the first one compiled, and adds what it compiles itself.
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
    let told = "0 compiles avoided, 0 entries there before the command, 1 added by it, 1 pushed";
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
    let told = "1 compile avoided, 1 entry there before the command, 1 added by it, 2 pushed";
    assert!(second.stderr.contains(told), "{second}");

    // Both are written down.
    let told = fs::read_to_string(env.path("home/.local/state/store/compiles.jsonl")).unwrap();
    assert_eq!(told.matches("\"misses\":1}").count(), 2, "{told}");
    assert!(told.contains("\"refs\":[\"project/one/neff\",\"project/two/neff\"],\"avoided\":1"));

    // A ref that must not be pushed to is named before the command starts.
    env.write(CONFIG, neuron_layout("team/speech/neff", ""));
    let refused = env.store(run(&["--layout", "trn"], "touch started"));
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(!env.path("started").exists());
}
