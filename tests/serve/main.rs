//! `store serve` for its clients: plain HTTP over a socket, and its log.
#![cfg(test)]

mod damage;
mod foreign;
mod hub;
mod killed;
mod limits;
mod moving;
mod origin;
mod page;
mod page_leaves;
mod paths;
mod places;
mod pull;
mod pull_closed;
mod pull_later;
mod pull_saved;
mod pull_sick;
mod refused;
mod replaced;
mod s3;
mod s3_client;
mod s3_list;
mod server;
mod shared;
mod stock;
mod terms;
mod tls;
mod tokens;
mod uploads;
mod write;
