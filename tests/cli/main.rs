//! The command as a person meets it: arguments, output, exit codes.
#![cfg(test)]

mod broken_off;
mod bundles;
mod cache;
mod cache_profiles;
mod cache_workers;
mod cat;
mod clusters;
mod damage;
mod duplicate;
mod failures;
mod gc;
mod help;
mod herd;
mod jobs;
mod json;
mod keep;
mod leftovers;
mod links;
mod listing;
mod open_files;
mod places;
mod rm;
mod round_trip;
mod run;
mod run_bases;
mod save;
mod secrets;
mod seed;
mod signals;
mod summarize;
mod told;
mod unchanged;
mod versions;
mod watch;
mod whereis;
