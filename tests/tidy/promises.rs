//! Every promise in the guide names tests that exist.

use crate::source::{files, report, root};

/// The guide; the last column of its table names tests.
const GUIDE: &str = "cli/guides/promises.md";

#[test]
fn promises_are_shown_by_tests_that_are_there() {
    let sources = files(&[".rs"]);
    let guide = std::fs::read_to_string(root().join(GUIDE)).unwrap();
    let mut offences = Vec::new();
    let rows = guide.lines().enumerate();
    let rows = rows.filter(|(_, line)| line.starts_with("| ") && !line.starts_with("| promise |"));
    let mut count = 0;
    for (number, row) in rows {
        count += 1;
        let shown = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let tests: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            offences.push(format!("{GUIDE}:{}: no test shows it", number + 1));
        }
        for test in tests {
            let (module, name) = test.split_once("::").unwrap_or((test, ""));
            let path = match module.contains('/') {
                true => format!("tests/{module}.rs"),
                false => format!("tests/cli/{module}.rs"),
            };
            let wanted = format!("#[test]\nfn {name}() {{");
            let is_there = |source: &crate::source::Source| {
                source.path == path && source.text.contains(&wanted)
            };
            if !sources.iter().any(is_there) {
                offences.push(format!("{GUIDE}:{}: there is no test {test}", number + 1));
            }
        }
    }
    assert!(count > 20, "{count} promises were found");
    report("a promise names the test that shows it", &offences);
}
