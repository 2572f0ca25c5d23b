//! Programs that provide credentials, and programs that fail to.

use super::*;
use crate::remote::wait::Wait;

const NOW: &str = "2026-01-01T12:00:00Z";

/// A program that counts its runs in a file, and then executes `body`.
fn counting(dir: &tempfile::TempDir, body: &str) -> Process {
    let command = format!("echo x >> {}/runs; {body}", dir.path().display());
    Process::new(&command, Arc::default())
}

fn runs(dir: &tempfile::TempDir) -> usize {
    let runs = std::fs::read_to_string(dir.path().join("runs"));
    runs.unwrap_or_default().lines().count()
}

fn at(process: &Process, now: &str) -> Result<Arc<AwsCredential>, String> {
    let wait = Wait::shared().unwrap();
    let found = wait.on(process.at(now.parse().unwrap()));
    found.map_err(|failed| failed.to_string())
}

fn printing(more: &str) -> String {
    format!(
        r#"echo '{{"Version": 1, "AccessKeyId": "id", "SecretAccessKey": "planted"{more}}}'; echo noise >&2"#
    )
}

#[test]
fn credentials_without_an_end_are_asked_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let process = counting(&dir, &printing(r#", "SessionToken": "token""#));
    let found = at(&process, NOW).unwrap();
    assert_eq!(
        (found.key_id.as_str(), found.secret_key.as_str()),
        ("id", "planted")
    );
    assert_eq!(found.token.as_deref(), Some("token"));
    at(&process, "2027-01-01T00:00:00Z").unwrap();
    assert_eq!(runs(&dir), 1);
    assert!(!format!("{process:?}").contains("planted"));
}

#[test]
fn credentials_are_replaced_before_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let process = counting(
        &dir,
        &printing(r#", "Expiration": "2026-01-01T13:00:00+00:00""#),
    );
    for (now, expected) in [
        (NOW, 1),
        ("2026-01-01T12:54:59Z", 1),
        ("2026-01-01T12:55:00Z", 2),
        // These are valid for five minutes, and are renewed when a quarter of that is left.
        ("2026-01-01T12:55:01Z", 2),
        ("2026-01-01T12:58:45Z", 3),
    ] {
        at(&process, now).unwrap();
        assert_eq!(runs(&dir), expected, "{now}");
    }
    let error = at(&process, "2026-01-01T13:00:00Z").unwrap_err();
    assert_eq!(
        error,
        "credential_process printed credentials that have expired already"
    );
}

#[test]
fn where_the_program_fails_later_the_old_ones_go_on_while_they_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let once = format!(
        "[ $(wc -l < {}/runs) = 1 ] || {{ echo no more >&2; exit 3; }}; {}",
        dir.path().display(),
        printing(r#", "Expiration": "2026-01-01T13:00:00Z""#)
    );
    let process = counting(&dir, &once);
    for (now, expected) in [
        (NOW, 1),
        ("2026-01-01T12:56:00Z", 2),
        // The program is not run for every request.
        ("2026-01-01T12:56:29Z", 2),
        ("2026-01-01T12:56:30Z", 3),
        ("2026-01-01T12:59:59Z", 4),
    ] {
        at(&process, now).unwrap();
        assert_eq!(runs(&dir), expected, "{now}");
    }
    let error = at(&process, "2026-01-01T13:00:00Z").unwrap_err();
    assert_eq!(error, "credential_process exit status: 3: no more");
}

#[test]
fn what_gives_no_credentials_is_told_without_what_it_printed() {
    for (command, why) in [
        ("exit 7", "exit status: 7"),
        (
            "printf 'first\\nlast \\033[2J\\n\\n' >&2; exit 1",
            "exit status: 1: last [2J",
        ),
        (
            "echo planted",
            "printed no credentials: expected a JSON object",
        ),
        (
            r#"echo '{"Version": 1, "AccessKeyId": "planted"}'"#,
            "printed no credentials",
        ),
        (
            r#"echo '{"Version": 2, "AccessKeyId": "planted", "SecretAccessKey": "planted"}'"#,
            "expected Version 1, found 2",
        ),
        ("/nonexistent/program", "exit status: 127"),
    ] {
        let error = at(&Process::new(command, Arc::default()), NOW).unwrap_err();
        assert!(
            error.starts_with(&format!("credential_process {why}")),
            "{command}: {error}"
        );
        assert!(!error.contains("planted"), "{error}");
    }
}

#[test]
fn a_program_that_does_not_end_is_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    // The sleeper keeps standard output open, and the fifo, by which the test sees whether the sleeper is gone.
    let command = format!(
        "mkfifo {0}; (exec 3> {0}; sleep 3600) & cat {0}",
        fifo.display()
    );
    let process = Process {
        time_max: Duration::from_millis(500),
        ..Process::new(&command, Arc::default())
    };
    let error = at(&process, NOW).unwrap_err();
    assert_eq!(error, "credential_process took too long, and was ended");
    // Reading the fifo ends when no process has it open for writing.
    let mut rest = Vec::new();
    let writer = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&fifo);
    let mut reader = std::fs::File::open(&fifo).unwrap();
    drop(writer);
    assert_eq!(reader.read_to_end(&mut rest).unwrap(), 0);
    let stopped = Process::new("sleep 3600", Arc::new(AtomicBool::new(true)));
    let error = at(&stopped, NOW).unwrap_err();
    assert_eq!(error, "credential_process was ended on request");
}
