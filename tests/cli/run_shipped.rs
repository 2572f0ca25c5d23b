//! Compile caches of built-in layouts: complete entries reach other hosts, and nothing else does.

use std::fs;
use std::process::{Command, Stdio};

use support::{Finished, TestEnvironment, environment, trees};

use crate::run::{REF, line};
use crate::run_compiles::HEAD;

const NEURON: &str = "neuron/neuronxcc-2.21";
const VLLM: &str = "vllm/torch_compile_cache/0123456789";
const VLLM_NEURON: &str = "vllm/neuron/compile_cache/0123456789abcdef0123456789abcdef";

/// Lists the job's cache, wherever the layout puts it.
const LIST: &str = "cd $NEURON_COMPILE_CACHE_URL/.. && find . -type f | sort";

/// The command on a host with its own home and base.
fn command(env: &TestEnvironment, host: &str, options: &[&str], script: &str) -> Command {
    let base = format!("base-{host}");
    let before = [
        "--store",
        "store",
        "run",
        "--project",
        "llama",
        "--base",
        &base,
    ];
    let after = ["--", "/bin/sh", "-c", script];
    let mut command = env.command([&before, options, &after].concat());
    command
        .env("HOME", env.path(format!("home-{host}")))
        .env("PATH", "/usr/bin:/bin");
    command
}

fn job(env: &TestEnvironment, host: &str, options: &[&str], script: &str) -> Finished {
    let done: Finished = command(env, host, options, script).output().unwrap().into();
    assert_eq!(done.code, Some(0), "{done}");
    done
}

fn listed(done: &Finished) -> Vec<String> {
    let text = String::from_utf8(done.stdout.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn of_store(env: &TestEnvironment, words: &[&str]) -> Finished {
    env.store([&["--store", "store"], words].concat())
}

/// What compilers leave: a complete entry in each cache, and failed or unfinished ones.
fn compiles() -> String {
    format!(
        "cd $NEURON_COMPILE_CACHE_URL/.. && put() {{ mkdir -p $(dirname $1) && echo ${{2-x}} > $1; }}
         put data; put vllm/assets/image
         put {NEURON}/MODULE_1+a/model.done; {{ printf '{HEAD}'; seq 99; }} > {NEURON}/MODULE_1+a/model.neff
         put {NEURON}/MODULE_2+a/model.log 'no memory'; put {NEURON}/MODULE_2+a/compile_flags.json '[]'
         put {NEURON}/MODULE_3+a/model.hlo_module.pb; put {NEURON}/MODULE_3+a/model.hlo_module.pb.lock
         put {NEURON}/MODULE_4+a/model.hlo_module.pb; put {NEURON}/MODULE_4+a/model.neff 'more than 17 bytes, and no mark'
         put inductor/ab/cabc.py; put inductor/ab/chalf.so; mkdir inductor/ab/chalf_CxxBuild
         put triton/KEY/__grp__add.json '{{}}'; put triton/KEY/add.cubin; put triton/HALF/add.ptx
         put {VLLM}/rank_0_0/vllm_compile_cache.py; put {VLLM}/rank_1_0/computation_graph.py
         put {VLLM_NEURON}/graph.neff; put vllm/neuron/compile_cache/{0}/graph.neff; put vllm/neuron/compile_cache/{0}/x.lock",
        "f".repeat(32)
    )
}

/// What another host must find of them.
fn complete() -> Vec<String> {
    [
        "data",
        "inductor/ab/cabc.py",
        &format!("{NEURON}/MODULE_1+a/model.done"),
        &format!("{NEURON}/MODULE_1+a/model.neff"),
        "triton/KEY/__grp__add.json",
        "triton/KEY/add.cubin",
        "vllm/assets/image",
        &format!("{VLLM_NEURON}/graph.neff"),
        &format!("{VLLM}/rank_0_0/vllm_compile_cache.py"),
    ]
    .map(|path| format!("./{path}"))
    .to_vec()
}

#[test]
fn whole_entries_reach_other_hosts_and_failed_or_half_ones_nobody() {
    let layouts = ["", "plain", "baseten", "baseten-rw-project"];
    for layout in layouts {
        let env = environment!();
        env.ok(["init", "store"]);
        let options = match layout {
            "" => Vec::new(),
            layout => vec!["--layout", layout],
        };
        job(&env, "a", &options, &compiles());
        let found = job(&env, "b", &options, LIST);
        assert_eq!(listed(&found), complete(), "{layout}: {found}");
        // Entries of other jobs are not pushed again by a job that adds nothing.
        job(&env, "a", &options, "true");
        let found = job(&env, "c", &options, LIST);
        assert_eq!(listed(&found), complete(), "{layout}: {found}");
    }
}

/// If nothing is compiled, there are no messages about compile caches, and no directories for them.
#[test]
fn who_compiles_nothing_is_told_nothing() {
    let env = environment!();
    env.ok(["init", "store"]);
    let done = job(
        &env,
        "a",
        &[],
        "mkdir -p $VLLM_CACHE_ROOT/assets; echo x > $VLLM_CACHE_ROOT/assets/x; ls $STORE_PROJECT_CACHE_DIR",
    );
    assert_eq!(listed(&done), ["vllm"], "{done}");
    for word in ["neff", "triton", "compile", "entr"] {
        assert!(!done.stderr.contains(word), "{done}");
    }
}

#[test]
fn what_is_saved_beside_a_compiler_is_whole_and_what_it_leaves_when_it_is_killed_is_nobodys() {
    let env = environment!();
    env.ok(["init", "store"]);
    let script = format!(
        "{}; echo ready; while [ ! -e go ]; do sleep 0.05; done",
        compiles().replace("cd $NEURON_COMPILE_CACHE_URL/.. && ", "")
    );
    let script = format!("here=$PWD; cd $NEURON_COMPILE_CACHE_URL/..; {script}")
        .replace("[ ! -e go ]", "[ ! -e $here/go ]");
    let mut running = command(&env, "a", &["--save-every", "1s"], &script);
    let piped = running.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    assert_eq!(line(&mut child), "ready\n");
    for name in ["cache", "inductor", "neff", "neff-vllm", "triton", "vllm"] {
        let name = format!("project/llama/{name}");
        while of_store(&env, &["ls", &name]).code != Some(0) {
            assert!(child.try_wait().unwrap().is_none(), "ended too soon");
        }
    }
    let found = job(&env, "b", &[], LIST);
    assert_eq!(listed(&found), complete(), "{found}");
    child.kill().unwrap();
    child.wait().unwrap();
    env.write("go", "");
    // The entry stays in its base, whichever save follows.
    env.write("base-a/project/late", "late");
    let mut pending = env.command(["--store", "store", "save", "--pending"]);
    pending.env("HOME", env.path("home-a"));
    let pending: Finished = pending.output().unwrap().into();
    assert_eq!(pending.code, Some(0), "{pending}");
    job(&env, "a", &[], "true");
    let found = job(&env, "c", &[], LIST);
    let mut expected = complete();
    expected.insert(4, "./late".to_owned());
    expected.sort();
    assert_eq!(listed(&found), expected, "{found}");
}

/// Earlier versions of this program saved compile caches with the project's cache, file by file.
#[test]
fn what_was_saved_with_the_cache_before_is_still_there_but_for_what_failed() {
    let env = environment!();
    env.ok(["init", "store"]);
    let old = |file: &str, text: &str| env.write(format!("old/{file}"), text);
    old("data", "x");
    env.write(
        format!("old/{NEURON}/MODULE_1+a/model.neff"),
        trees::neff(1, 2000),
    );
    old(&format!("{NEURON}/MODULE_1+a/model.done"), "");
    old(&format!("{NEURON}/MODULE_2+a/model.log"), "no memory");
    old(&format!("{NEURON}/MODULE_3+a/model.hlo_module.pb"), "x");
    for only_compiles in [false, true] {
        if only_compiles {
            fs::remove_file(env.path("old/data")).unwrap();
            assert_eq!(
                of_store(&env, &["rm", "--yes", "project/llama"]).code,
                Some(0)
            );
        }
        assert_eq!(of_store(&env, &["put", "old", REF]).code, Some(0));
        let host = format!("a-{only_compiles}");
        let found = job(&env, &host, &[], LIST);
        let mut expected = vec![
            "./data".to_owned(),
            format!("./{NEURON}/MODULE_1+a/model.done"),
            format!("./{NEURON}/MODULE_1+a/model.neff"),
        ];
        expected.drain(..usize::from(only_compiles));
        assert_eq!(listed(&found), expected, "{found}");
        assert!(found.stderr.contains("MODULE_2+a: failed"), "{found}");
        assert!(found.stderr.contains("MODULE_3+a: incomplete"), "{found}");
        // Complete modules are entries from now on; the old version does not change.
        let entries = of_store(&env, &["ls", "-r", "project/llama/neff"]);
        let entries = String::from_utf8(entries.stdout).unwrap();
        assert!(entries.contains("MODULE_1+a/model.neff") && !entries.contains("MODULE_2"));
        let again = job(&env, &host, &[], LIST);
        assert_eq!(listed(&again), expected, "{again}");
        let out = format!("out-{only_compiles}");
        assert_eq!(of_store(&env, &["get", REF, &out]).code, Some(0));
        assert!(
            env.path(&out)
                .join(NEURON)
                .join("MODULE_2+a/model.log")
                .exists()
        );
        assert_eq!(
            of_store(&env, &["history", REF, "--json"])
                .stdout
                .iter()
                .filter(|byte| **byte == b'\n')
                .count(),
            1
        );
    }
}

#[test]
fn a_ref_of_something_else_is_not_taken_for_a_compile_cache() {
    let env = environment!();
    env.ok(["init", "store"]);
    env.write("source/python/setup.py", "import triton");
    env.write("source/readme", "text");
    let put = of_store(&env, &["put", "source", "project/llama/triton"]);
    assert_eq!(put.code, Some(0), "{put}");
    let script =
        "mkdir -p $TRITON_CACHE_DIR/KEY; echo '{}' > $TRITON_CACHE_DIR/KEY/__grp__add.json";
    let done = job(&env, "a", &[], script);
    assert!(done.stderr.contains("project/llama/triton@1"), "{done}");
    assert_eq!(
        of_store(&env, &["ls", "project/llama/triton@2"]).code,
        Some(3)
    );
}

/// Nothing of the project's cache is saved then, but the base still belongs to the project.
#[test]
fn a_project_that_only_compiles_has_its_base_again() {
    let env = environment!();
    env.ok(["init", "store"]);
    let script =
        "mkdir -p $TRITON_CACHE_DIR/KEY; echo '{}' > $TRITON_CACHE_DIR/KEY/__grp__add.json";
    for _ in 0..2 {
        job(&env, "a", &[], script);
        let mut pending = env.command(["--store", "store", "save", "--pending"]);
        pending.env("HOME", env.path("home-a"));
        let pending: Finished = pending.output().unwrap().into();
        assert_eq!(pending.code, Some(0), "{pending}");
    }
    let mut other = env.command([
        "--store",
        "store",
        "run",
        "--project",
        "other",
        "--base",
        "base-a",
        "--",
        "true",
    ]);
    let other: Finished = other
        .env("HOME", env.path("home-a"))
        .output()
        .unwrap()
        .into();
    assert_eq!(other.code, Some(5), "{other}");
    job(&env, "a", &[], "echo x > $STORE_PROJECT_CACHE_DIR/data");
    let found = job(&env, "b", &[], LIST);
    assert_eq!(
        listed(&found),
        ["./data", "./triton/KEY/__grp__add.json"],
        "{found}"
    );
}

#[test]
fn compile_caches_are_brought_with_the_cache_from_another_cluster() {
    let env = environment!();
    env.ok(["init", "store"]);
    env.ok(["init", "there"]);
    job(&env, "a", &[], &compiles());
    for name in ["cache", "neff", "inductor", "triton", "vllm", "neff-vllm"] {
        let sent = of_store(&env, &["push", &format!("project/llama/{name}"), "there"]);
        assert_eq!(sent.code, Some(0), "{sent}");
    }
    fs::rename(env.path("store"), env.path("elsewhere")).unwrap();
    env.ok(["init", "store"]);
    let there = env.path("there");
    let config = format!("[cluster.h200]\nurl = \"{}\"\n", there.display());
    env.write("home-b/.config/store/config.toml", config);
    let found = job(&env, "b", &["--fallback", "h200"], LIST);
    assert_eq!(listed(&found), complete(), "{found}");
}
