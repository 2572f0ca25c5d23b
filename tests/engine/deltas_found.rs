//! Where the base of a delta is found.

use std::fs;

use crate::deltas::{NUMBERS, REF, halved, model, safetensors, weights};
use crate::world::World;

#[test]
fn in_a_directory_the_base_is_the_file_of_the_same_path() {
    let world = World::new();
    let remote = world.memory();
    for steps in 0..2 {
        let tree = world.tree(&format!("steps-{steps}"));
        let other = halved(&weights(7, NUMBERS));
        for (at, bytes) in [
            ("a/b/model", safetensors(&model(steps))),
            ("a/other", other),
        ] {
            let file = tree.join(at);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        }
        let name = format!("steps-{steps}");
        let report = world.put(remote.clone(), &name, REF).unwrap();
        let is_less = report.stored_bytes * 100 < report.new_bytes * 40;
        assert_eq!(is_less, steps == 1, "{report:?}");
    }
}
