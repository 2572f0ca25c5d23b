//! Compile caches in a store that has lost packs: what is whole is pulled, what is lost is named, and a push of the same
//! entries stores it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use support::{Random, TestEnvironment, environment, trees};

use crate::cache::{PROJECT, module, modules, neff};

fn packs(env: &TestEnvironment) -> BTreeSet<PathBuf> {
    let dirs = fs::read_dir(env.path("home/.local/share/store/packs")).unwrap();
    let files = dirs.flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

/// A cache of three modules in a ref, of which the first push stored two. Returns the packs of that push, the smallest
/// first: that of the trees and that of the bytes, or one, if there is not `much` in the modules.
fn cache_of_two_pushes(env: &TestEnvironment, much: bool) -> Vec<PathBuf> {
    let here = env.path("here");
    for (key, seed) in [("1+a", 1), ("2+b", 2)] {
        let dir = module(&here, key, seed);
        if much {
            trees::write(&dir.join("graph.bin"), &Random::new(seed).bytes(200_000));
        }
    }
    neff(env, &["push", "here", PROJECT], 0);
    let mut first: Vec<PathBuf> = packs(env).into_iter().collect();
    first.sort_by_key(|pack| fs::metadata(pack).unwrap().len());
    let dir = module(&here, "3+c", 3);
    // Nothing of it is in the packs of the first push.
    trees::write(&dir.join("compile_flags.json"), b"[\"-O3\"]");
    neff(env, &["push", "here", PROJECT], 0);
    env.ok(["rm", &format!("{PROJECT}@1")]);
    assert_eq!(first.len(), 1 + usize::from(much));
    first
}

#[test]
fn what_is_lost_is_named_and_a_push_stores_it_again() {
    for (much, which) in [(false, 0), (true, 0), (true, 1)] {
        for is_cut in [false, true] {
            let env = environment!();
            let pack = &cache_of_two_pushes(&env, much)[which];
            match is_cut {
                true => fs::write(pack, &fs::read(pack).unwrap()[..200]).unwrap(),
                false => fs::remove_file(pack).unwrap(),
            }
            let status = neff(&env, &["status", "here", PROJECT], 0);
            let compared = &status["refs"][0];
            assert_eq!(
                compared["broken_there"].as_array().unwrap().len(),
                2,
                "{status}"
            );
            let keys = ["lookup", "MODULE_1+a", "MODULE_3+c", PROJECT];
            assert_eq!(env.store(["neff"].iter().chain(&keys)).code, Some(6));

            let pulled = neff(&env, &["pull", "there", PROJECT], 6);
            assert_eq!(pulled["pulled"], 1, "{pulled}");
            let refused = pulled["refused"].as_array().unwrap();
            assert!(refused.iter().all(|one| one["state"] == "lost"), "{pulled}");
            assert_eq!(refused.len(), 2, "{pulled}");
            assert_eq!(modules(&env.path("there")), ["MODULE_3+c"]);

            let pushed = neff(&env, &["push", "here", PROJECT], 0);
            let counted = ["pushed", "same", "healed"].map(|what| pushed[what].as_u64());
            assert_eq!(counted, [Some(0), Some(1), Some(2)], "{pushed}");
            let again = neff(&env, &["push", "here", PROJECT], 0);
            assert_eq!(
                (&again["same"], again.get("healed")),
                (&3.into(), None),
                "{again}"
            );
            let pulled = neff(&env, &["pull", "there", PROJECT], 0);
            assert_eq!(pulled["pulled"], 2, "{pulled}");
            let (here, there) = (env.path("here"), env.path("there"));
            let diff = Command::new("diff").arg("-r").args([here, there]).status();
            assert!(diff.unwrap().success());
            env.ok(["verify", "--read-data"]);
        }
    }
}

/// A job begins with what is there, and its end brings back what it had.
#[test]
fn a_run_takes_what_is_whole() {
    let env = environment!();
    let packs = cache_of_two_pushes(&env, true);
    fs::remove_file(&packs[1]).unwrap();
    let words = ["run", "--project", "llama", "--base", "base", "--"];
    let done = env.store(words.iter().chain(&["true"]));
    assert_eq!(done.code, Some(0), "{done}");
    let told = "2 entries cannot be pulled: the store has lost their bytes";
    assert!(done.stderr.contains(told), "{done}");
    let cache = env.path("base/project/neuron");
    assert_eq!(modules(&cache), ["MODULE_3+c"]);
    module(&cache, "1+a", 1);
    let done = env.store(words.iter().chain(&["true"]));
    assert_eq!(done.code, Some(6), "{done}");
    assert!(done.stderr.contains("is lost in part"), "{done}");
    let pulled = neff(&env, &["pull", "there", PROJECT], 6);
    assert_eq!(pulled["pulled"], 2, "{pulled}");
}
