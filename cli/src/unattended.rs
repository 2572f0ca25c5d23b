//! What runs a verb by itself: a service and a timer of systemd, or a line of crontab.

use store::{Error, Result};

use crate::clusters;

/// What to print instead of doing it.
#[derive(clap::Args)]
#[command(next_help_heading = "From cron")]
pub(crate) struct Unattended {
    /// Print a service and a timer for systemd that run this command every hour, and do nothing
    #[arg(long, conflicts_with = "crontab")]
    systemd: bool,

    /// Print a line for crontab that runs this command every hour, and do nothing
    #[arg(long)]
    crontab: bool,
}

/// What systemd calls it.
pub(crate) struct Unit {
    /// Without the ending.
    pub(crate) name: String,
    pub(crate) what: &'static str,
}

impl Unattended {
    /// What was asked for; none, when the verb itself was.
    pub(crate) fn text(&self, unit: &Unit) -> Result<Option<String>> {
        if !self.systemd && !self.crontab {
            return Ok(None);
        }
        let program = std::env::current_exe()
            .map_err(|source| Error::io("find", "the program's own file", source))?;
        let mut words = vec![program.to_string_lossy().into_owned()];
        words.extend(
            std::env::args_os()
                .skip(1)
                .map(|word| word.to_string_lossy().into_owned())
                .filter(|word| word != "--systemd" && word != "--crontab"),
        );
        if words.iter().any(|word| clusters::masked(word) != *word) {
            return Err(Error::invalid("a URL on the command line holds credentials").hint(
                "what runs unattended takes them from a [profile.NAME] of the configuration, or from its environment",
            ));
        }
        Ok(Some(match self.systemd {
            true => systemd(unit, &words),
            false => crontab(&words),
        }))
    }
}

fn systemd(unit: &Unit, words: &[String]) -> String {
    let Unit { name, what } = unit;
    let command: Vec<String> = words.iter().map(|word| systemd_quoted(word)).collect();
    let command = command.join(" ");
    format!(
        "# ~/.config/systemd/user/{name}.service\n[Unit]\nDescription={what}\n\n\
         [Service]\nType=oneshot\nExecStart={command}\nNice=10\nIOSchedulingClass=idle\n\n\
         # ~/.config/systemd/user/{name}.timer\n[Unit]\nDescription={what}, every hour\n\n\
         [Timer]\nOnCalendar=hourly\nRandomizedDelaySec=15min\nPersistent=true\n\n\
         [Install]\nWantedBy=timers.target"
    )
}

fn crontab(words: &[String]) -> String {
    let command: Vec<String> = words.iter().map(|word| shell_quoted(word)).collect();
    // A percent sign is a newline to cron.
    format!("17 * * * * {}", command.join(" ").replace('%', "\\%"))
}

fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    !word.is_empty() && word.chars().all(plain)
}

fn shell_quoted(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// systemd expands `%` and `$`, and knows the escapes of C in double quotes.
fn systemd_quoted(word: &str) -> String {
    let word = word.replace('%', "%%").replace('$', "$$");
    if is_plain(&word) {
        return word;
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_their_shells() {
        let words = [
            "/bin/store",
            "gc",
            "--refs",
            "project/*",
            "--max-unused",
            "5%",
        ];
        let words = words.map(str::to_owned);
        assert_eq!(
            crontab(&words),
            "17 * * * * /bin/store gc --refs 'project/*' --max-unused 5\\%"
        );
        let unit = Unit {
            name: "store-gc".to_owned(),
            what: "Collect the garbage of a store",
        };
        assert!(
            systemd(&unit, &words)
                .contains("\nExecStart=/bin/store gc --refs \"project/*\" --max-unused 5%%\n")
        );
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
    }
}
