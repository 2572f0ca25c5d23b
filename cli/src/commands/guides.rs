//! Guides: texts by task, which the command carries with it.

/// Guides, printed as in the repository. The first line is the title.
pub(super) const TOPICS: [(&str, &str); 12] = [
    ("bucket", include_str!("../../guides/bucket.md")),
    ("clusters", include_str!("../../guides/clusters.md")),
    (
        "compile-caches",
        include_str!("../../guides/compile-caches.md"),
    ),
    ("doors", include_str!("../../guides/doors.md")),
    ("job-caches", include_str!("../../guides/job-caches.md")),
    ("kubernetes", include_str!("../../guides/kubernetes.md")),
    ("promises", include_str!("../../guides/promises.md")),
    ("reference", include_str!("../../guides/reference.md")),
    ("slurm", include_str!("../../guides/slurm.md")),
    ("space", include_str!("../../guides/space.md")),
    ("systemd", include_str!("../../guides/systemd.md")),
    ("users", include_str!("../../guides/users.md")),
];

/// The names of the guides, for the end of `store --help`.
pub(super) fn topics() -> String {
    TOPICS.map(|(name, _)| name).join(", ")
}

/// The title: the first line, which is `# Title`.
pub(super) fn title(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches('#').trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guide_is_a_topic_with_a_title() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("guides");
        let files = std::fs::read_dir(dir).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut guides: Vec<String> = names
            .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
            .collect();
        guides.sort();
        assert_eq!(guides.join(", "), topics());
        for (name, text) in TOPICS {
            assert!(text.starts_with("# ") && !title(text).is_empty(), "{name}");
        }
    }
}
