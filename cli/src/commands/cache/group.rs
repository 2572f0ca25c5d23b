//! Group files: JSON that names the other files of a directory by absolute paths, as Triton makes them.
//!
//! A compiler that finds one reads all that it names, so a group with a name too much, or half of one, breaks a job.

use serde_json::Value;

/// The names that a group file has: the last parts of the absolute paths in it. In a ref, such a path may begin with
/// `root`. `None` if it is no JSON.
pub(super) fn names(text: &[u8], root: &[u8]) -> Option<Vec<String>> {
    let group = serde_json::from_slice(text).ok()?;
    let mut names = Vec::new();
    add(&group, root, &mut names);
    Some(names)
}

/// The parser limits the depth of values.
fn add(value: &Value, root: &[u8], names: &mut Vec<String>) {
    match value {
        Value::String(path) if path.starts_with('/') || path.as_bytes().starts_with(root) => {
            let name = path.rsplit('/').next().unwrap_or(path);
            names.push(name.to_owned());
        }
        Value::Array(values) => values.iter().for_each(|value| add(value, root, names)),
        Value::Object(values) => values.values().for_each(|value| add(value, root, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_group_are_those_of_its_paths() {
        let found = |text: &str| names(text.as_bytes(), b"@ROOT@");
        let whole = r#"{"child_paths": {"k.ptx": "/a/KEY/k.ptx", "k.so": "@ROOT@/KEY/k.so"}, "x": ["y", 1]}"#;
        assert_eq!(found(whole).unwrap(), ["k.ptx", "k.so"]);
        assert_eq!(found("{}").unwrap(), [""; 0]);
        for at in 0..whole.len() {
            assert_eq!(found(&whole[..at]), None, "{at}");
        }
    }
}
