//! Schedules for a verb: a systemd service and timer, or a line of crontab.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use store::{Error, Result};

use crate::config;
use crate::config::clusters::{self, Label};
use crate::context::Context;
use crate::host::files::{self, Use};

/// What to print instead of doing it.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "From cron")]
pub(crate) struct Unattended {
    /// Print a systemd service and timer that run this command, or write them into an existing directory like
    /// ~/.config/systemd/user, and exit
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "-", conflicts_with = "crontab")]
    systemd: Option<PathBuf>,

    /// Print a line for crontab that runs this command, and exit
    #[arg(long)]
    crontab: bool,

    /// How often it runs [default: hourly; a job of `duplicate` that is called like one of these, or `nightly`, runs so]
    #[arg(long, value_name = "WHEN", value_enum)]
    schedule: Option<Schedule>,
}

/// How often a command runs.
#[derive(Clone, Copy, Debug, clap::ValueEnum, PartialEq, Eq)]
enum Schedule {
    Hourly,
    Daily,
    Weekly,
    Monthly,
}

/// The properties of a systemd unit.
pub(crate) struct Unit {
    /// The name without its suffix.
    pub(crate) name: String,
    pub(crate) what: &'static str,
    /// The job that the unit runs.
    pub(crate) job: Option<Label>,
    /// The selected store, if the verb works with one.
    pub(crate) store: Option<String>,
    /// Whether `--dry-run` was given.
    pub(crate) dry_run: bool,
}

/// A command line that means the same in any directory, and the environment variables that it needs.
pub(crate) struct Command {
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) words: Vec<String>,
}

/// Options whose values are stores.
const STORES: [&str; 3] = ["--store", "--from", "--to"];
/// Options whose values are paths of this host.
const PATHS: [&str; 5] = [
    "--metrics-file",
    "--access-log",
    "--s3-keys",
    "--tls-cert",
    "--tls-key",
];
/// Variables that locate files. A person's environment has them; cron's does not.
const VARIABLES: [&str; 7] = [
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "XDG_DATA_HOME",
    "STORE_PROFILE",
    "STORE_DEADLINE",
    "STORE_POOL",
];

impl Unattended {
    /// The requested text; `None` if the verb itself is to run.
    pub(crate) fn text(&self, unit: &Unit, context: &Context) -> Result<Option<String>> {
        if self.systemd.is_none() && !self.crontab {
            return match self.schedule {
                Some(_) => Err(Error::invalid("--schedule alone runs nothing")
                    .hint("add --crontab or --systemd, and install what that prints")),
                None => Ok(None),
            };
        }
        if unit.dry_run {
            return Err(Error::invalid(
                "--dry-run: what runs unattended with it never does anything",
            )
            .hint("leave it out: --crontab and --systemd only print what would run, or write the units"));
        }
        let command = Command::of_this(unit, context)?;
        command.check()?;
        command.check_shown()?;
        let schedule = self
            .schedule
            .unwrap_or_else(|| Schedule::of(unit.job.as_ref()));
        Ok(Some(match &self.systemd {
            Some(dir) if dir.as_os_str() == "-" => {
                let [(service, text), (timer, times)] = command.units(unit, schedule);
                format!(
                    "# ~/.config/systemd/user/{service}\n{text}\n# ~/.config/systemd/user/{timer}\n{}",
                    times.trim_end()
                )
            }
            Some(dir) => write(dir, &command.units(unit, schedule))?,
            None => command.crontab(schedule),
        }))
    }
}

/// Writes the units. They may exist already, but not as others: of another store, or edited by hand.
fn write(dir: &Path, units: &[(String, String); 2]) -> Result<String> {
    if !dir.is_dir() {
        return Err(Error::invalid(format!("--systemd {}: no such directory", dir.display()))
            .hint("name one that exists, like ~/.config/systemd/user; --systemd at the end of the command prints the units"));
    }
    for (name, text) in units {
        let path = dir.join(name);
        files::check_place(&path, &config::precious())?;
        if files::read(&path).is_ok_and(|there| there != *text) {
            return Err(Error::conflict(format!(
                "{}: is there already, and says something else",
                path.display()
            ))
            .hint("remove it if it is to be replaced; --systemd at the end of the command prints what would be written"));
        }
    }
    let mut written = Vec::new();
    for (name, text) in units {
        let path = dir.join(name);
        files::replace(&path, text.as_bytes(), Use::Report)?;
        written.push(format!("wrote {}", path.display()));
    }
    let [_, (timer, _)] = units;
    written.push(format!(
        "start it with `systemctl --user daemon-reload` and `systemctl --user enable --now {timer}`"
    ));
    Ok(written.join("\n"))
}

impl Schedule {
    /// Guesses the schedule from the job's name, so that a job called nightly does not run every hour.
    fn of(job: Option<&Label>) -> Self {
        match job.map(Label::as_str) {
            Some("nightly" | "daily") => Self::Daily,
            Some("weekly") => Self::Weekly,
            Some("monthly") => Self::Monthly,
            _ => Self::Hourly,
        }
    }

    fn cron(self) -> &'static str {
        match self {
            Self::Hourly => "17 * * * *",
            Self::Daily => "17 3 * * *",
            Self::Weekly => "17 3 * * 0",
            Self::Monthly => "17 3 1 * *",
        }
    }

    fn calendar(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "*-*-* 03:17:00",
            Self::Weekly => "Sun *-*-* 03:17:00",
            Self::Monthly => "*-*-01 03:17:00",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Hourly => "every hour",
            Self::Daily => "every day",
            Self::Weekly => "every week",
            Self::Monthly => "every month",
        }
    }
}

impl Command {
    /// The command line of a server for this store.
    pub(crate) fn of_server(store: &str, context: &Context) -> Result<Self> {
        let unit = Unit {
            name: String::new(),
            what: "",
            job: None,
            store: Some(store.to_owned()),
            dry_run: false,
        };
        let command = Self::of_this(&unit, context)?;
        command.check()?;
        command.check_shown()?;
        Ok(command)
    }

    /// This command line without the options for schedules; paths are absolute and the store is named.
    fn of_this(unit: &Unit, context: &Context) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|source| Error::io("find", "the program's own file", source))?;
        let mut words = vec![program.to_string_lossy().into_owned()];
        words.extend(lasting(
            std::env::args_os().skip(1),
            unit.store.is_some(),
            context,
        )?);
        if let Some(store) = &unit.store {
            words.extend(["--store".to_owned(), store.clone()]);
        }
        let set = |name: &'static str| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            Some((name, value))
        };
        Ok(Self {
            variables: VARIABLES.into_iter().filter_map(set).collect(),
            words,
        })
    }

    /// Refuses credentials, because everybody who can read the unit could read them.
    fn check_shown(&self) -> Result<()> {
        match self.words.iter().all(|word| clusters::masked(word) == *word) {
            true => Ok(()),
            false => Err(Error::invalid("a URL on the command line holds credentials").hint(
                "what runs unattended takes them from a [profile.NAME] of the configuration, or from its environment",
            )),
        }
    }

    /// Refuses control characters: a newline would end the line, and the rest would become another setting.
    fn check(&self) -> Result<()> {
        let values = self.variables.iter().map(|(_, value)| value);
        let cannot = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
        match self.words.iter().chain(values).find(|word| word.contains(cannot)) {
            None => Ok(()),
            Some(word) => Err(Error::invalid(format!(
                "{word:?}: holds a newline, another control character or what is no UTF-8, which neither crontab nor \
                 systemd takes"
            ))
            .hint("give the directory another name, or let a script of your own run the command")),
        }
    }

    fn units(&self, unit: &Unit, schedule: Schedule) -> [(String, String); 2] {
        let Unit { name, what, .. } = unit;
        let words: Vec<String> = self.words.iter().map(|word| systemd_quoted(word)).collect();
        let command = words.join(" ");
        let set = self.variables.iter().map(|(name, value)| {
            let set = systemd_value(&format!("{name}={value}"));
            format!("Environment={set}\n")
        });
        let set: String = set.collect();
        let (when, calendar) = (schedule.told(), schedule.calendar());
        let service = format!(
            "[Unit]\nDescription={what}\n\n\
             [Service]\nType=oneshot\n{set}ExecStart={command}\nNice=10\nIOSchedulingClass=idle\n"
        );
        let timer = format!(
            "[Unit]\nDescription={what}, {when}\n\n\
             [Timer]\nOnCalendar={calendar}\nRandomizedDelaySec=15min\nPersistent=true\n\n\
             [Install]\nWantedBy=timers.target\n"
        );
        [
            (format!("{name}.service"), service),
            (format!("{name}.timer"), timer),
        ]
    }

    fn crontab(&self, schedule: Schedule) -> String {
        let set = self
            .variables
            .iter()
            .map(|(name, value)| format!("{name}={}", shell_quoted(value)));
        let words = self.words.iter().map(|word| shell_quoted(word));
        let command: Vec<String> = set.chain(words).collect();
        // cron reads a percent sign as a newline.
        format!(
            "{} {}",
            schedule.cron(),
            command.join(" ").replace('%', "\\%")
        )
    }
}

/// The words of a command line, without the options for schedules. If `own_store` is set, the caller names the store.
fn lasting(
    words: impl Iterator<Item = OsString>,
    own_store: bool,
    context: &Context,
) -> Result<Vec<String>> {
    let mut words = words
        .map(|word| word.to_string_lossy().into_owned())
        .peekable();
    let mut lasting = Vec::new();
    while let Some(word) = words.next() {
        let (option, joined) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => {
                (option.to_owned(), Some(value.to_owned()))
            }
            _ => (word.clone(), None),
        };
        let mut value = || joined.clone().or_else(|| words.next()).unwrap_or_default();
        match option.as_str() {
            "--crontab" => {}
            "--systemd" => {
                // The option's value is a directory, or it has none.
                if joined.is_none() {
                    drop(words.next_if(|next| Path::new(next).is_dir()));
                }
            }
            "--schedule" => drop(value()),
            "--store" if own_store => drop(value()),
            name if STORES.contains(&name) => lasting.extend([option, context.lasting(&value())?]),
            name if PATHS.contains(&name) => {
                let path = value();
                let path = std::path::absolute(&path)
                    .map_err(|source| Error::io("find the path of", &path, source))?;
                lasting.extend([option, path.to_string_lossy().into_owned()]);
            }
            _ => lasting.push(word),
        }
    }
    Ok(lasting)
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

/// Quotes a word for a systemd command line, where `$` is expanded as well.
pub(crate) fn systemd_quoted(word: &str) -> String {
    systemd_value(&word.replace('$', "$$"))
}

/// Quotes a word for a systemd setting, where `%` is expanded and double quotes have C escapes.
pub(crate) fn systemd_value(word: &str) -> String {
    let word = word.replace('%', "%%");
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
        let command = Command {
            variables: vec![("XDG_CONFIG_HOME", "/a b".to_owned())],
            words: words.map(str::to_owned).into(),
        };
        assert_eq!(
            command.crontab(Schedule::Hourly),
            "17 * * * * XDG_CONFIG_HOME='/a b' /bin/store gc --refs 'project/*' --max-unused 5\\%"
        );
        let unit = Unit {
            name: "store-gc".to_owned(),
            what: "Collect the garbage of a store",
            job: None,
            store: None,
            dry_run: false,
        };
        let [(service, text), (timer, times)] = command.units(&unit, Schedule::Daily);
        assert_eq!(
            (service.as_str(), timer.as_str()),
            ("store-gc.service", "store-gc.timer")
        );
        assert!(text.contains(
            "\nEnvironment=\"XDG_CONFIG_HOME=/a b\"\nExecStart=/bin/store gc --refs \"project/*\" --max-unused 5%%\n"
        ));
        assert!(times.contains("\nOnCalendar=*-*-* 03:17:00\n"));
        assert_eq!(
            (systemd_quoted("a$%"), systemd_value("a$%")),
            ("\"a$$%%\"".to_owned(), "\"a$%%\"".to_owned())
        );
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_job_runs_as_often_as_its_name_says() {
        let of = |name: &str| Schedule::of(name.parse().ok().as_ref());
        assert_eq!(of("nightly"), Schedule::Daily);
        assert_eq!(of("weekly"), Schedule::Weekly);
        assert_eq!(of("h200"), Schedule::Hourly);
    }
}
