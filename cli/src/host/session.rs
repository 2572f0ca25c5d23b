//! The session of this process and its terminal, from `/proc/self/stat` (see proc(5)).

/// The place of this process in its session. A number is 0 if its process began outside of this container.
///
/// The calls of rustix require nonzero numbers, so they panic or worse in such a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    group: i32,
    leader: i32,
    /// The foreground process group of the terminal; -1 without a terminal.
    foreground: i32,
}

impl Session {
    /// The session of this process; `None` if it cannot be read.
    pub(crate) fn own() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The process name may contain spaces and parentheses.
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

    /// Whether the terminal sends its signals to this process, Ctrl-C above all.
    pub(crate) fn is_in_foreground(self) -> bool {
        self.group == self.foreground
    }

    /// Whether this process leads the session, so that the session holds only this process and its children.
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
