//! Files in a compile cache that belong to no entry are reported, since they are neither pushed nor saved.

use serde_json::{Value, json};
use support::environment;

use crate::cache::{PROJECT, module, neff};
use crate::run::run;
use crate::run_compiles::{CONFIG, compile, neuron_layout};

fn reports(stderr: &str) -> Vec<Value> {
    let lines = stderr.lines();
    let told = lines.filter_map(|line| serde_json::from_str(line).ok());
    told.filter(|told: &Value| told.get("misses").is_some())
        .collect()
}

/// Creates strays, entries, volatile files and a file that is saved with the cache.
const STRAYS: &str = "cd $NEURON_COMPILE_CACHE_URL/../; mkdir -p neuron/neuronxcc-1 inductor/locks inductor/ab vllm/assets vllm/torch_compile_cache;
     for name in 1 2 3 4 5; do echo mine > neuron/neuronxcc-1/mine-$name; done; echo mine > neuron/a.txt; : > neuron/b.lock;
     : > inductor/locks/x.lock; : > inductor/ab/cabc.py;
     echo saved > vllm/assets/image; echo mine > vllm/torch_compile_cache/mine";

#[test]
fn what_is_no_entry_of_a_shipped_cache_is_named() {
    let env = environment!();
    env.ok(["init"]);
    let done = env.store(run(&[], STRAYS));
    assert_eq!(done.code, Some(0), "{done}");
    let neuron = env.path("base/project/neuron");
    let named = format!(
        "note: compile cache {} (neff): neither pushed nor saved with a cache: 6 files of no entry: a.txt, \
         neuronxcc-1/mine-1, neuronxcc-1/mine-2, neuronxcc-1/mine-3, neuronxcc-1/mine-4, ...",
        neuron.display()
    );
    assert!(done.stderr.contains(&named), "{done}");
    assert!(
        done.stderr
            .contains("1 file of no entry: torch_compile_cache/mine\n"),
        "{done}"
    );
    assert!(!done.stderr.contains("(inductor): neither"), "{done}");
    assert!(!done.stderr.contains("assets"), "{done}");
    let words = [&["--json"], &run(&[], "true")[..]].concat();
    let done = env.store(words);
    let told = reports(&done.stderr);
    let neff = told.iter().find(|told| told["profile"] == "neff").unwrap();
    assert_eq!(neff["no_entry"]["files"], 6, "{done}");
    let first = neff["no_entry"]["first"].as_array().unwrap();
    assert_eq!(first.len(), 5, "{done}");
    assert_eq!(first[0], json!({"path": "a.txt"}), "{done}");
}

/// The directory of a configured layout may be saved with the cache.
#[test]
fn what_a_cache_is_saved_with_is_not_named() {
    let env = environment!();
    let own = neuron_layout("project/llama/neff", "");
    let script = format!("{}; echo mine > $NEURON/mine", compile("1+a"));
    let named = "neither pushed nor saved with a cache: 1 file of no entry: mine\n";
    for (layout, is_named) in [
        (own.clone(), true),
        (own.replace("{base}/neuron", "{project}/neuron"), false),
        (
            own.replace("{base}/neuron", "{project}/neuron").replacen(
                "team = \"team\"\n",
                "team = \"team\"\nexclude = [\"/neuron/\"]\n",
                1,
            ),
            true,
        ),
    ] {
        env.write(CONFIG, &layout);
        let done = env.store(run(&["--layout", "trn"], &script));
        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(done.stderr.contains(named), is_named, "{layout}{done}");
    }
}

#[test]
fn a_push_and_a_status_name_what_is_no_entry() {
    let env = environment!();
    env.ok(["init"]);
    module(&env.path("here"), "1+a", 1);
    env.write("here/mine", "mine");
    let done = env.store(["neff", "push", "here", PROJECT]);
    assert_eq!(done.code, Some(0), "{done}");
    assert!(
        done.stderr
            .contains("not pushed: 1 file of no entry: mine\n"),
        "{done}"
    );
    let expected = json!({"files": 1, "first": [{"path": "mine"}]});
    for words in [&["push", "here", PROJECT][..], &["status", "here", PROJECT]] {
        assert_eq!(neff(&env, words, 0)["no_entry"], expected, "{words:?}");
    }
    let status = env.ok(["neff", "status", "here"]);
    assert!(
        status.ends_with("\n  1 file of no entry: mine\n"),
        "{status}"
    );
}

/// A push or a pull of a ref that is something else says so and changes nothing.
#[test]
fn a_ref_of_something_else_gets_no_entries() {
    let env = environment!();
    env.ok(["init"]);
    module(&env.path("here"), "1+a", 1);
    let (data, file) = ("project/llama/data", "project/llama/file");
    env.write("data/train/0.tar", "data");
    env.ok(["put", "data", data]);
    env.ok(["put", "data/train/0.tar", file]);
    let refused = |words: &[&str], code, told: &str| {
        let done = env.store(words);
        assert_eq!(done.code, Some(code), "{done}");
        assert!(done.stderr.contains(told), "{done}");
    };
    let before = [data, file].map(|name| env.ok(["history", name]));
    let none = "data@1: has no entry of a compile cache (neff)";
    refused(&["neff", "push", "here", data], 5, none);
    let is_file = "file@1: is a file, expected the directory of a compile cache";
    for verb in ["push", "pull", "status"] {
        refused(&["neff", verb, "here", file], 2, is_file);
    }
    assert_eq!([data, file].map(|name| env.ok(["history", name])), before);
    // What is empty, and a cache of another compiler, take entries.
    std::fs::create_dir(env.path("empty")).unwrap();
    let data = "project/llama/empty";
    env.ok(["put", "empty", data]);
    env.ok(["neff", "push", "here", data]);
    env.write("kernels/HASH/kernel.json", "{}");
    env.write("kernels/HASH/kernel.cubin", "binary");
    env.write("kernels/HASH/__grp__kernel.json", "{}");
    env.ok(["cache", "push", "--profile", "triton", "kernels", data]);
}
