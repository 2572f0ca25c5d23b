//! The command as a person meets it: arguments, output, exit codes.
#![cfg(test)]
