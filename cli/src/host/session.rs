//! The session of this process and its terminal, as proc(5) tells them in `/proc/self/stat`.

/// Where this process stands in its session. A number is 0 where its process began outside of this container.
///
/// The system calls of rustix give numbers that are never 0, and panic or worse in such a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    group: i32,
    leader: i32,
    /// The group that its terminal listens to; -1 without one.
    foreground: i32,
}

impl Session {
    /// That of this process; none, where nothing tells it.
    pub(crate) fn own() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // A name may hold spaces and parentheses.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ').skip(2);
        let group = fields.next()?.parse().ok()?;
        let leader = fields.next()?.parse().ok()?;
        let foreground = fields.nth(1)?.parse().ok()?;
        Some(Self {
            group,
            leader,
            foreground,
        })
    }

    /// Whether the terminal tells this process what is typed, Ctrl-C above all.
    pub(crate) fn is_in_foreground(self) -> bool {
        self.group == self.foreground
    }

    /// Whether this process began the session, so that nobody else's work is in it but its own children's.
    pub(crate) fn is_led_by(self, pid: u32) -> bool {
        u32::try_from(self.leader) == Ok(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let session = Session::parse("7 (a) b (c) S 1 7 5 34816 7 4194304 90").unwrap();
        assert!(session.is_in_foreground());
        assert!(session.is_led_by(5) && !session.is_led_by(7));
        let other = Session::parse("7 (a) S 1 7 7 0 -1 4194304").unwrap();
        assert!(!other.is_in_foreground());
        assert!(other.is_led_by(7));
    }

    #[test]
    fn what_is_not_told_is_no_session() {
        assert!(Session::parse("7 (a) S 1").is_none());
        assert!(Session::own().unwrap().leader >= 0);
    }
}
