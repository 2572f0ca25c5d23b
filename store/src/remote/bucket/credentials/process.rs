//! AWS credentials that a program prints: `credential_process` of a profile.
//!
//! The protocol is AWS's: the program prints a JSON object with `Version` 1, the keys, and optionally a token and an
//! expiry. Credentials are kept until shortly before they expire. If the program fails then, the old ones are used as
//! long as they are valid. The output of the program is never shown; of its standard error, only the last line is.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::Promise;

/// How long the program may run; a user may have to touch a security key.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How often to check whether the program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The most bytes of output that are read.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
const SAID_CHARS_MAX: usize = 300;
/// How long before their expiry credentials are renewed; less if they are valid for less than four times as long.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// How long the program is not run again after a failure, if the old credentials are still valid.
const PAUSE: SignedDuration = SignedDuration::from_secs(30);

/// A program that provides credentials, and what it provided last.
pub(in crate::remote::bucket) struct Process {
    command: String,
    time_max: Duration,
    stop: Arc<AtomicBool>,
    given: Mutex<Option<Given>>,
}

#[derive(Clone)]
struct Given {
    credential: Arc<AwsCredential>,
    /// When to renew the credentials, and when they expire.
    ends: Option<(Timestamp, Timestamp)>,
}

/// The output of the program.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<Timestamp>,
}

/// Why the program provided no credentials.
#[derive(Debug)]
pub(in crate::remote::bucket) struct Failed(String);

impl Process {
    /// The shell runs `command`, and the command is killed when `stop` is set.
    pub(in crate::remote::bucket) fn new(command: &str, stop: Arc<AtomicBool>) -> Self {
        Self {
            command: command.to_owned(),
            time_max: TIME_MAX,
            stop,
            given: Mutex::default(),
        }
    }

    /// Returns known credentials while they are fresh; otherwise runs the program. Only one caller runs it, the others
    /// wait.
    async fn at(&self, now: Timestamp) -> Result<Arc<AwsCredential>, Failed> {
        let mut given = self.given.lock().await;
        if let Some(known) = given.as_ref().filter(|given| given.is_fresh(now)) {
            return Ok(Arc::clone(&known.credential));
        }
        let asked = self.ask().await.and_then(|out| Given::parse(&out, now));
        match (asked, given.as_mut()) {
            (Ok(new), _) => Ok(Arc::clone(&given.insert(new).credential)),
            (Err(_), Some(old)) if old.is_valid(now) => {
                old.put_off(now);
                Ok(Arc::clone(&old.credential))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Runs the program, and returns its output.
    async fn ask(&self) -> Result<Vec<u8>, Failed> {
        let (command, most) = (self.command.clone(), self.time_max);
        let stop = Arc::clone(&self.stop);
        let run = tokio::task::spawn_blocking(move || run(&command, most, &stop));
        run.await.unwrap_or_else(|_| failed("was not run"))
    }
}

impl CredentialProvider for Process {
    type Credential = AwsCredential;

    fn get_credential<'s, 'f>(&'s self) -> Promise<'f, AwsCredential>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async {
            let found = self.at(Timestamp::now()).await;
            found.map_err(|failed| Error::Generic {
                store: "S3",
                source: Box::new(failed),
            })
        })
    }
}

impl Given {
    /// Parses the output. Errors do not repeat any of it.
    fn parse(printed: &[u8], now: Timestamp) -> Result<Self, Failed> {
        let printed: Printed = match serde_json::from_slice(printed) {
            Ok(printed) => printed,
            Err(error) => {
                let place = format!("line {}, column {}", error.line(), error.column());
                return failed(format!(
                    "printed no credentials: expected a JSON object with Version, AccessKeyId and SecretAccessKey, \
                     wrong at {place}"
                ));
            }
        };
        if printed.version != 1 {
            return failed(format!("expected Version 1, found {}", printed.version));
        }
        if printed.expiration.is_some_and(|end| end <= now) {
            return failed("printed credentials that have expired already");
        }
        let ends = printed.expiration.map(|end| {
            let early = RENEW_BEFORE.min(end.duration_since(now) / 4);
            (end.checked_sub(early).unwrap_or(end), end)
        });
        Ok(Self {
            credential: Arc::new(AwsCredential {
                key_id: printed.access_key_id,
                secret_key: printed.secret_access_key,
                token: printed.session_token.filter(|token| !token.is_empty()),
            }),
            ends,
        })
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        self.ends.is_none_or(|(renew, _)| now < renew)
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        self.ends.is_none_or(|(_, end)| now < end)
    }

    fn put_off(&mut self, now: Timestamp) {
        if let Some((renew, end)) = &mut self.ends {
            *renew = now.checked_add(PAUSE).unwrap_or(*end).min(*end);
        }
    }
}

/// Runs `command` until it ends or must be killed, together with all processes that it started: it gets its own group.
fn run(command: &str, most: Duration, stop: &AtomicBool) -> Result<Vec<u8>, Failed> {
    let until = Instant::now() + most;
    let spawned = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return failed(format!("cannot be run: {error}")),
    };
    let printed = child.stdout.take().map(read);
    let said = child.stderr.take().map(read);
    let ended = wait(&mut child, until, stop);
    if ended.is_err() {
        end(&mut child);
    }
    let status = ended?;
    let rest = || until.saturating_duration_since(Instant::now());
    let all = |pipe: Option<Receiver<Vec<u8>>>| pipe?.recv_timeout(rest()).ok();
    match (status.success(), all(printed)) {
        (true, Some(printed)) => Ok(printed),
        (true, None) => {
            end(&mut child);
            failed("ended, but a program that it started still holds its output")
        }
        (false, _) => failed(format!("{status}{}", last_line(all(said)))),
    }
}

/// Reads a pipe to its end, on a thread of its own: a full pipe would block the program.
fn read(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Truncated output is not valid JSON.
        let _cut_off = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        // The receiver may be gone.
        let _nobody = send.send(bytes);
    });
    receive
}

fn wait(child: &mut Child, until: Instant, stop: &AtomicBool) -> Result<ExitStatus, Failed> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if stop.load(Ordering::Relaxed) => return failed("was ended on request"),
            Ok(None) if Instant::now() >= until => {
                return failed("took too long, and was ended");
            }
            Ok(None) => std::thread::sleep(LOOK_EVERY),
            Err(error) => return failed(format!("cannot be waited for: {error}")),
        }
    }
}

/// Kills the process group. The process, and its group, may have ended already.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let _gone = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ended = child.wait();
}

fn last_line(said: Option<Vec<u8>>) -> String {
    let said = said.unwrap_or_default();
    let text = String::from_utf8_lossy(&said);
    let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else {
        return String::new();
    };
    let plain = line.trim().chars().filter(|letter| !letter.is_control());
    let short: String = plain.take(SAID_CHARS_MAX).collect();
    format!(": {short}")
}

fn failed<T>(why: impl Into<String>) -> Result<T, Failed> {
    Err(Failed(why.into()))
}

impl fmt::Debug for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Process")
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "credential_process {}", self.0)
    }
}

impl std::error::Error for Failed {}

#[cfg(test)]
mod tests;
