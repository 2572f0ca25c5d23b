//! `store serve` as its clients meet it: plain HTTP over a socket, and the log that is left behind.
#![cfg(test)]

mod damage;
mod hub;
mod limits;
mod paths;
mod server;
mod tokens;
mod write;
