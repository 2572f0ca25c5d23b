//! The report of a collection, for people: what was freed, and why the rest was not.

use std::fmt;
use std::time::Duration;

use gc::CollectReport;
use gc::nameless::{Doomed, NamelessRow};
use gc::plan::{PackFate, Plan, Wait};
use gc::policy::{Drop, Why};
use gc::report::Over;
use jiff::Timestamp;
use serde::Serialize;

use crate::ui::human;

/// A report in printable form.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct ShownReport(pub(crate) CollectReport);

impl fmt::Display for ShownReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.0;
        if report.dry_run {
            plan(out, &report.plan)?;
        } else {
            done(out, report)?;
        }
        held(out, report)?;
        report
            .over
            .iter()
            .try_for_each(|over| self::over(out, over))
    }
}

fn done(out: &mut fmt::Formatter<'_>, report: &CollectReport) -> fmt::Result {
    freed(out, report)?;
    if report.condemned_bytes > 0 {
        writeln!(
            out,
            "condemned  {}, of which {} was copied first",
            human::bytes(report.condemned_bytes),
            human::bytes(report.copied_bytes)
        )?;
    }
    for drop in report
        .plan
        .drop
        .iter()
        .filter(|_| !report.entries.is_empty())
    {
        writeln!(out, "dropped    {}", dropped(drop))?;
    }
    if report.disk_full {
        writeln!(
            out,
            "stopped: the disk has no room for a copy of what lives in little-used packs; the next run continues"
        )?;
    } else if report.stopped {
        writeln!(out, "stopped before the end; the next run continues")?;
    }
    Ok(())
}

/// What the store takes less than before the run: copies of what lives in deleted packs take space again.
fn freed(out: &mut fmt::Formatter<'_>, report: &CollectReport) -> fmt::Result {
    let (deleted, copied) = (report.freed_bytes, report.copied_bytes);
    let objects = human::counted(report.freed_objects, "object");
    let time = human::duration(Duration::from_secs_f64(report.secs));
    let freed = match report.freed_objects {
        // Copies of what waits for its grace are told with it.
        0 => 0,
        _ => deleted.saturating_sub(copied),
    };
    let freed_bytes = human::bytes(freed);
    if freed == deleted {
        return writeln!(out, "freed      {freed_bytes} in {objects} ({time})");
    }
    let (deleted, copied) = (human::bytes(deleted), human::bytes(copied));
    writeln!(
        out,
        "freed      {freed_bytes}: {objects} of {deleted} deleted, {copied} copied to new packs ({time})"
    )
}

/// The bytes of objects to delete at once, and those that the objects to condemn take beside what is copied from them.
fn would_free(plan: &Plan) -> (u64, u64) {
    let due: u64 = plan.delete.iter().map(|doomed| doomed.bytes).sum();
    let now = due + plan.nameless.bytes();
    let packs = plan.condemn.iter().map(|pack| pack.bytes);
    let copied = plan.repack.iter().map(|pack| pack.unused_bytes);
    let segments = plan.orphan_segments.iter().map(|(_, bytes)| *bytes);
    (now, packs.chain(copied).chain(segments).sum())
}

fn plan(out: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    writeln!(
        out,
        "plan for entry {} of the log; nothing is done",
        plan.base
    )?;
    let (now, later) = would_free(plan);
    writeln!(
        out,
        "would free {} now, {} when the grace is over",
        human::bytes(now),
        human::bytes(later)
    )?;
    each(out, &plan.delete)?;
    for row in plan.nameless.rows() {
        match row {
            NamelessRow::Each { objects, .. } => each(out, objects)?,
            NamelessRow::Number { one, which, keys } if !keys.is_empty() => {
                let number = human::counted(keys.len() as u64, one);
                writeln!(out, "delete     {number} {which}")?;
            }
            NamelessRow::Number { .. } => {}
        }
    }
    for drop in &plan.drop {
        writeln!(out, "drop       {}", dropped(drop))?;
    }
    for pack in plan.condemn.iter().chain(&plan.repack) {
        let verb = match pack.why {
            PackFate::Dead => "condemn    pack",
            PackFate::Orphan => "condemn    orphan pack",
            PackFate::Sparse => "copy       pack",
            PackFate::Small => "join       pack",
        };
        let (bytes, unused) = (human::bytes(pack.bytes), human::bytes(pack.unused_bytes));
        writeln!(out, "{verb} {} ({bytes}, {unused} unused)", pack.pack)?;
    }
    for segment in &plan.drop_segments {
        writeln!(out, "drop       segment {segment}")?;
    }
    for (segment, bytes) in &plan.orphan_segments {
        writeln!(
            out,
            "drop       orphan segment {segment} ({})",
            human::bytes(*bytes)
        )?;
    }
    for segment in &plan.merge {
        writeln!(out, "merge      segment {segment}")?;
    }
    Ok(())
}

fn each(out: &mut fmt::Formatter<'_>, doomed: &[Doomed]) -> fmt::Result {
    doomed.iter().try_for_each(|doomed| {
        let bytes = human::bytes(doomed.bytes);
        writeln!(out, "delete     {} ({bytes})", doomed.key)
    })
}

/// A version that is dropped, and why.
fn dropped(drop: &Drop) -> String {
    let why = match drop.why {
        Why::Expired => "its time to live is over",
        Why::Retention => "no rule keeps it",
        Why::Quota => "its namespace is over its quota",
        Why::MaxSize => "the store is over its limit of size",
    };
    let why = match drop.last_use {
        None => why.to_owned(),
        Some(day) => format!("{why}, last used {day}"),
    };
    format!("{}@{} ({why})", drop.name, drop.version)
}

/// Why space is still in use.
fn held(out: &mut fmt::Formatter<'_>, report: &CollectReport) -> fmt::Result {
    let (live, held) = (&report.live, &report.held);
    let mut rows = vec![(
        live.newest_bytes,
        "the newest version of each ref".to_owned(),
    )];
    rows.push((
        live.by_retention_bytes,
        "older versions that are kept".to_owned(),
    ));
    rows.push((
        live.by_pins_bytes,
        "versions that only their pin keeps".to_owned(),
    ));
    rows.push(waiting(
        held.by_grace,
        "condemned, to be deleted after the grace",
    ));
    // If the age is already reached, as after `--min-age 0`, advice to use that option would be useless.
    let is_waiting = held
        .by_age
        .until
        .is_some_and(|until| until > Timestamp::now());
    rows.push(match is_waiting {
        true => waiting(
            held.by_age,
            "of puts and transfers that have not ended; `store gc --min-age 0` takes it at once",
        ),
        false => (
            held.by_age.bytes,
            "of puts and transfers that have not ended; a later run looks at it again".to_owned(),
        ),
    });
    rows.push((
        held.unused_bytes,
        "unused inside packs, below the limit".to_owned(),
    ));
    rows.extend(
        report
            .shared
            .iter()
            .map(|(name, bytes)| (*bytes, format!("of what was dropped is shared with {name}"))),
    );
    rows.retain(|(bytes, _)| *bytes > 0);
    if rows.is_empty() {
        return write!(out, "nothing else takes space");
    }
    write!(out, "not freed, because:")?;
    for (bytes, why) in rows {
        write!(out, "\n  {:>8}  {why}", human::bytes(bytes))?;
    }
    Ok(())
}

/// A limit that is exceeded, and the reason.
fn over(out: &mut fmt::Formatter<'_>, over: &Over) -> fmt::Result {
    let (who, limit) = match &over.namespace {
        Some(namespace) => (namespace.as_str(), "its quota"),
        None => ("the store", "its limit"),
    };
    write!(
        out,
        "\nover {limit}: {who} takes {} of {}; the rest is pinned, the newest of its ref, or needed by others",
        human::bytes(over.bytes),
        human::bytes(over.bytes_max)
    )
}

fn waiting(wait: Wait, what: &str) -> (u64, String) {
    let until = wait.until.map_or_else(String::new, |until| {
        format!(", until {} UTC", human::time(until))
    });
    (wait.bytes, format!("{what}{until}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told<'r>(&'r CollectReport);

    impl fmt::Display for Told<'_> {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            held(out, self.0)
        }
    }

    #[test]
    fn what_was_copied_first_is_not_freed() {
        for (deleted, objects, copied, told) in [
            (0, 0, 0, "0 B in 0 objects"),
            (5_000_000, 2, 0, "5.00 MB in 2 objects"),
            (0, 0, 7_000_000, "0 B in 0 objects"),
            (
                20_300_000,
                66,
                19_400_000,
                "900 kB: 66 objects of 20.3 MB deleted, 19.4 MB copied to new packs",
            ),
            (
                5_000_000,
                2,
                7_000_000,
                "0 B: 2 objects of 5.00 MB deleted, 7.00 MB copied to new packs",
            ),
        ] {
            let report = CollectReport {
                freed_bytes: deleted,
                freed_objects: objects,
                copied_bytes: copied,
                ..CollectReport::default()
            };
            let shown = ShownReport(report).to_string();
            let line = format!("freed      {told} (");
            assert!(shown.starts_with(&line), "{shown}");
        }
    }

    #[test]
    fn a_store_that_holds_nothing_has_no_reasons() {
        assert_eq!(
            Told(&CollectReport::default()).to_string(),
            "nothing else takes space"
        );
    }

    #[test]
    fn a_run_that_takes_what_is_young_is_not_told_to_take_it() {
        let mut report = CollectReport::default();
        for (secs, is_advised) in [(3600, true), (-1, false)] {
            report.held.by_age = Wait {
                bytes: 5000,
                until: Some(Timestamp::now() + jiff::SignedDuration::from_secs(secs)),
            };
            let told = Told(&report).to_string();
            assert!(
                told.contains("of puts and transfers that have not ended"),
                "{told}"
            );
            assert_eq!(told.contains("--min-age 0"), is_advised, "{told}");
        }
    }
}
