//! Repairs texts that a copy takes to another host: they may name this host's cache directory, or hosts.
//!
//! When a text leaves the host, a placeholder replaces the root of the cache. On arrival, the path of the cache there
//! replaces the placeholder.

use std::path::Path;

use super::profile::Shape;

/// Replaces the root of the cache in a ref.
pub(super) const ROOT: &[u8] = b"@STORE_CACHE_ROOT@";
/// Replaces the name of a host.
const HOST: &[u8] = b"host";
/// Longer texts are not repaired.
pub(super) const TEXT_BYTES_MAX: u64 = 16 << 20;

impl Shape {
    pub(super) fn is_repaired(&self, path: &[u8]) -> bool {
        self.is_rebased(path) || self.is_scrubbed(path)
    }

    pub(super) fn is_rebased(&self, path: &[u8]) -> bool {
        self.rebase.iter().any(|pattern| pattern.matches(path))
    }

    pub(super) fn is_scrubbed(&self, path: &[u8]) -> bool {
        self.scrub.iter().any(|pattern| pattern.matches(path))
    }

    /// Prepares a text for the ref.
    pub(super) fn leaving(&self, path: &[u8], text: Vec<u8>, root: &Path) -> Vec<u8> {
        let text = match self.is_rebased(path) {
            true => replaced(&text, root.as_os_str().as_encoded_bytes(), ROOT),
            false => text,
        };
        match self.is_scrubbed(path) {
            true => scrubbed(&text),
            false => text,
        }
    }

    /// Prepares a text from the ref for this host.
    pub(super) fn arriving(&self, path: &[u8], text: Vec<u8>, root: &Path) -> Vec<u8> {
        match self.is_rebased(path) {
            true => replaced(&text, ROOT, root.as_os_str().as_encoded_bytes()),
            false => text,
        }
    }
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        match rest.strip_prefix(from).filter(|_| !from.is_empty()) {
            Some(after) => {
                made.extend_from_slice(to);
                rest = after;
            }
            None => {
                made.push(*first);
                rest = after;
            }
        }
    }
    made
}

/// Removes the name of this host, and names that clouds derive from addresses.
fn scrubbed(text: &[u8]) -> Vec<u8> {
    let host = rustix::system::uname();
    let host = host.nodename().to_bytes();
    // A short name may be an ordinary word.
    let text = match host.len() > 4 && host != b"localhost" {
        true => replaced(text, host, HOST),
        false => text.to_vec(),
    };
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text.as_slice();
    while let Some((first, after)) = rest.split_first() {
        match address(rest) {
            Some(after) => {
                made.extend_from_slice(HOST);
                rest = after;
            }
            None => {
                made.push(*first);
                rest = after;
            }
        }
    }
    made
}

/// The text after a name like `ip-10-0-0-1`.
fn address(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"ip")?;
    for _ in 0..4 {
        let number = rest.strip_prefix(b"-")?;
        let digits = number
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        rest = number.get(digits..).filter(|_| (1..=3).contains(&digits))?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_stay_at_home() {
        let text = scrubbed(b"--dump /home/ip-10-0-12-1/x ip-1-2-3 ship-1-2-3-4567");
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "--dump /home/host/x ip-1-2-3 ship-1-2-3-4567"
        );
    }

    #[test]
    fn a_root_comes_out_as_another_one() {
        let left = replaced(b"{\"k\":\"/a/b/k\"}", b"/a/b", ROOT);
        assert_eq!(replaced(&left, ROOT, b"/c"), b"{\"k\":\"/c/k\"}");
    }
}
