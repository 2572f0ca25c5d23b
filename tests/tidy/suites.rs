//! Long suites: each test with a long form is run by one of them.

use crate::source::{files, report, root};

/// A test binary that a suite runs, and the modules that it selects; `None` selects all.
struct Reach {
    binary: String,
    modules: Option<Vec<String>>,
}

/// What the suites with the variable of `effort` run: whole binaries as `--test NAME`, modules as a line
/// `binary_id(tests::NAME) & test(/^(one|other)::/)`.
fn reached() -> Vec<Reach> {
    let suites = files(&["run.sh"]);
    let long = suites
        .iter()
        .filter(|suite| suite.text.contains("STORE_TESTS_SLOW=1"));
    let mut all = Vec::new();
    for suite in long {
        let mut words = suite.text.split_whitespace();
        while words.by_ref().any(|word| word == "--test") {
            all.extend(words.next().map(|binary| Reach {
                binary: binary.to_owned(),
                modules: None,
            }));
        }
        all.extend(suite.text.lines().filter_map(clause));
    }
    all
}

fn clause(line: &str) -> Option<Reach> {
    let rest = line.trim().strip_prefix("binary_id(tests::")?;
    let (binary, rest) = rest.split_once(") & test(/^(")?;
    let (modules, _) = rest.split_once(")::/)")?;
    Some(Reach {
        binary: binary.to_owned(),
        modules: Some(modules.split('|').map(str::to_owned).collect()),
    })
}

#[test]
fn what_is_tried_at_length_is_reached_by_a_long_suite() {
    let reached = reached();
    let mut offences = Vec::new();
    let mut count = 0;
    for source in files(&[".rs"]) {
        // tests/BINARY/MODULE.rs, or tests/BINARY/MODULE/...
        let place = source.path.strip_prefix("tests/");
        let Some((binary, module)) = place.and_then(|place| place.split_once('/')) else {
            continue;
        };
        let module = module.trim_end_matches(".rs");
        let module = module.split('/').next().unwrap_or(module);
        let uses = source.text.lines().enumerate();
        let uses = uses.filter(|(_, line)| line.contains("effort(") && !line.contains("fn effort"));
        for (number, _) in uses.filter(|_| binary != "tidy") {
            count += 1;
            let has = |reach: &Reach| {
                let modules = reach.modules.as_ref();
                let has_module = modules.is_none_or(|all| all.iter().any(|name| name == module));
                reach.binary == binary && has_module
            };
            if !reached.iter().any(has) {
                offences.push(format!(
                    "{}:{}: no long suite runs it",
                    source.path,
                    number + 1
                ));
            }
        }
    }
    assert!(count > 20, "{count} uses were found");
    report(
        "what is tried at length is reached by a suite that sets STORE_TESTS_SLOW",
        &offences,
    );
}

/// A filter for a missing module would select nothing.
#[test]
fn a_long_suite_names_modules_that_are_there() {
    let mut offences = Vec::new();
    for Reach { binary, modules } in reached() {
        for module in modules.into_iter().flatten() {
            let place = root().join("tests").join(&binary);
            let is_there =
                place.join(format!("{module}.rs")).exists() || place.join(&module).is_dir();
            if !is_there {
                offences.push(format!("tests/{binary}: there is no module {module}"));
            }
        }
    }
    report("a suite names modules that are there", &offences);
}
