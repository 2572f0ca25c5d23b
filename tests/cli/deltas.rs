//! Deltas: what the command reports about them, and how to put without them.

use support::{Random, environment};

/// Two-byte numbers like those of a model, after this many steps of training.
pub(crate) fn weights(steps: u64) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut numbers: Vec<u16> = (0..400_000)
        .map(|_| 0x3d00 + u16::try_from(random.below(1024)).unwrap())
        .collect();
    for step in 0..steps {
        let mut random = Random::new(100 + step);
        for number in &mut numbers {
            *number += u16::try_from(random.below(4)).unwrap();
        }
    }
    numbers.into_iter().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn a_model_that_was_trained_further_takes_little_and_says_what_it_holds() {
    let env = environment!();
    env.write("in/model", weights(0));
    env.ok(["put", "in", "project/demo/model"]);
    let before = env.ok(["info"]);
    assert!(!before.contains("deltas"), "{before}");
    let without = env.ok(["summarize", "project/demo/model"]);
    assert!(!without.contains("deltas"), "{without}");
    env.write("in/model", weights(1));
    let stored = |arguments: &[&str]| {
        let told = env.ok([&["put", "in"], arguments, &["--json"]].concat());
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["stored_bytes"].as_u64().unwrap()
    };
    let (model, dry) = ("project/demo/model", "--dry-run");
    let none = stored(&[model, dry, "--delta-base", "none"]);
    let auto = stored(&[model, dry]);
    let named = stored(&[
        "team/demo/other",
        dry,
        "--delta-base",
        "project/demo/model@1",
    ]);
    assert!(
        auto * 2 < none && named * 2 < none,
        "{auto}, {named}, {none}"
    );
    let elsewhere = stored(&["team/demo/other", dry]);
    assert!(elsewhere + 20_000 > none, "{elsewhere}, {none}");
    let gone = env.store(["put", "in", model, "--delta-base", "project/demo/none"]);
    assert_eq!(gone.code, Some(3), "{gone}");
    let wrong = env.store(["put", "in", model, "--delta-base", "nowhere"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    env.ok(["put", "in", model]);
    let summary = env.ok(["summarize", model]);
    let line = |text: &str, word: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(word));
        lines
            .next()
            .unwrap_or_else(|| panic!("{word}: {text}"))
            .to_owned()
    };
    assert!(line(&summary, "deltas ").contains("saved"), "{summary}");
    assert!(!line(&summary, "bases ").contains("alone"), "{summary}");
    assert!(
        line(&env.ok(["info"]), "deltas ").contains("bases of 8"),
        "800 kB"
    );
    env.ok(["rm", "project/demo/model@1"]);
    let summary = env.ok(["summarize", model]);
    assert!(
        line(&summary, "bases ").contains("for deltas alone"),
        "{summary}"
    );
    env.ok(["gc", "--min-age", "0", "--grace", "0"]);
    env.ok(["verify", "--read-data"]);
    env.ok(["get", model, "out"]);
    assert!(std::fs::read(env.path("out/model")).unwrap() == weights(1));
}

/// A base that only deltas need takes space as well: with a single delta left, that is a loss.
#[test]
fn what_is_saved_counts_the_bases_that_are_there_for_deltas_alone() {
    let env = environment!();
    let model = "project/demo/model";
    for steps in 0..2 {
        env.write("in/model", weights(steps));
        env.ok(["put", "in", model]);
    }
    let saved = |verb: &[&str]| {
        let told = env.ok([verb, &["--json"]].concat());
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["deltas"]["saved_bytes"].as_i64().unwrap()
    };
    for verb in [&["info"][..], &["summarize", model]] {
        assert!(saved(verb) > 100_000, "{verb:?}");
    }
    env.ok(["rm", "project/demo/model@1"]);
    for verb in [&["summarize", model][..], &["summarize", "project/demo"]] {
        assert!(saved(verb) < 0, "{verb:?}: {}", saved(verb));
        let text = env.ok(verb.iter().copied());
        let line = text.lines().find(|line| line.starts_with("deltas "));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(
            line.contains("costs about") && !line.contains("saved"),
            "{line}"
        );
    }
    // With two deltas it is a gain again.
    env.write("in/model", weights(2));
    env.ok(["put", "in", model]);
    for verb in [&["info"][..], &["summarize", model]] {
        assert!(saved(verb) > 0, "{verb:?}: {}", saved(verb));
    }
}

#[test]
fn features_are_shown_those_of_the_format_and_those_that_were_learned() {
    let env = environment!();
    for steps in 0..2 {
        env.write("in/model", weights(steps));
        env.ok(["put", "in", "project/demo/model"]);
        let text = env.ok(["info"]);
        let line = text.lines().find(|line| line.starts_with("features "));
        let told = env.ok(["info", "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let (shown, learned) = match steps {
            0 => (None, serde_json::json!([])),
            _ => (
                Some("features     delta-frames (incompatible)"),
                serde_json::json!(["delta-frames"]),
            ),
        };
        assert_eq!(line, shown, "{text}");
        assert_eq!(told["features"]["incompatible"], learned);
    }
}
