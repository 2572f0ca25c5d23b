//! Titles of checkpoints, which are the messages of their versions: the name, and the checksum of its files.

pub(super) fn name(title: &str) -> &str {
    title.rsplit_once(' ').map_or(title, |(name, _)| name)
}

/// Whether a message is a title: a name, a space, and 16 hex digits.
pub(super) fn is_title(message: &str) -> bool {
    let is_hex = |sum: &str| sum.len() == 16 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    message
        .rsplit_once(' ')
        .is_some_and(|(name, sum)| !name.is_empty() && is_hex(sum))
}
