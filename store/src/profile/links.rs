//! Where symlinks lead inside of a tree, by their text alone. Pure.

/// Where a link at `path` leads: relative to the tree's root at `root`, or `None` outside of it.
pub(super) fn resolve(root: &[u8], path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.starts_with(b"/") {
        let rest = target.strip_prefix(root)?.strip_prefix(b"/")?;
        return walk(Vec::new(), rest);
    }
    let mut names: Vec<&[u8]> = split(path).collect();
    names.pop();
    walk(names, target)
}

/// The shortest target by which a link at `path` leads to `to`, both relative to one root.
pub(super) fn relative(path: &[u8], to: &[u8]) -> Vec<u8> {
    let mut from: Vec<&[u8]> = split(path).collect();
    from.pop();
    let to: Vec<&[u8]> = split(to).collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(common).map(|_| &b".."[..]);
    let down = to.iter().skip(common).copied();
    up.chain(down).collect::<Vec<_>>().join(&b'/')
}

fn walk<'a>(mut names: Vec<&'a [u8]>, target: &'a [u8]) -> Option<Vec<u8>> {
    for name in split(target) {
        match name {
            b"." => {}
            b".." => {
                names.pop()?;
            }
            _ => names.push(name),
        }
    }
    Some(names.join(&b'/'))
}

fn split(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_by_their_text() {
        let cases: [(&str, &str, Option<&str>); 8] = [
            ("m/snapshots/c/f", "../../blobs/x", Some("m/blobs/x")),
            ("m/snapshots/c/d/f", "../../../blobs/x", Some("m/blobs/x")),
            ("f", "./a//b", Some("a/b")),
            ("f", "../x", None),
            ("a/f", "../../x/../..", None),
            ("a/f", "/tree/b/c", Some("b/c")),
            ("a/f", "/trees/b", None),
            ("a/f", "/tree/../x", None),
        ];
        for (path, target, expected) in cases {
            let found = resolve(b"/tree", path.as_bytes(), target.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{target}");
        }
    }

    #[test]
    fn a_relative_target_leads_back() {
        for (path, to, target) in [
            ("m/snapshots/c/f", "m/blobs/x", "../../blobs/x"),
            ("m/snapshots/c/d/f", "m/blobs/x", "../../../blobs/x"),
            ("f", "blobs/x", "blobs/x"),
        ] {
            let found = relative(path.as_bytes(), to.as_bytes());
            assert_eq!(found, target.as_bytes());
            assert_eq!(
                resolve(b"/tree", path.as_bytes(), &found).as_deref(),
                Some(to.as_bytes())
            );
        }
    }
}
