//! What a client is told that is to ask again later.

use support::environment;

use crate::origin::Origin;
use crate::server::Server;

/// Clients from 1.0 on do not ask for a file again after 503, and older ones not after 429.
#[test]
fn a_client_that_is_to_ask_for_a_file_again_hears_so_in_its_own_words() {
    let env = environment!();
    env.ok(["init"]);
    let origin = Origin::start();
    origin.add("org/m", &[("sub/x.bin", b"bytes")]);
    let url = origin.url();
    let server = Server::start(&env, &["--upstream", &url]);
    let file = "/project/demo/org/m/resolve/main/sub/x.bin";
    assert_eq!(server.ask(&format!("HEAD {file}")).status, 200);
    origin.plan(|plan| plan.file_status = Some(503));
    let ask = |what: &str, agent: &str| {
        let answer = server.ask(&format!("{what}\nUser-Agent: {agent}"));
        let is_told_when = answer.header("retry-after").is_some();
        (answer.status, is_told_when)
    };
    for (agent, status) in [
        ("unknown/None; hf_hub/2.4.0; python/3.11.2", 429),
        ("transformers/5.2; hf_hub/1.0.0; python/3.11.2", 429),
        ("unknown/None; hf_hub/0.36.2; python/3.11.2", 503),
        ("curl/8", 503),
    ] {
        let found = ask(&format!("GET {file}"), agent);
        assert_eq!(found, (status, true), "{agent}");
    }
    // What it asks for with HEAD, or in lists, it asks for again after 503.
    origin.plan(|plan| plan.status = Some((503, "")));
    let newest = "unknown/None; hf_hub/2.4.0; python/3.11.2";
    let unknown = "/project/demo/org/other/resolve/main/x";
    assert_eq!(ask(&format!("HEAD {unknown}"), newest), (503, true));
    let unknown = "/project/demo/api/models/org/other";
    assert_eq!(ask(&format!("GET {unknown}"), newest), (503, true));
    drop(server);
    // Nothing is better later where the upstream is never asked.
    let server = Server::start(&env, &["--upstream", &url, "--offline"]);
    let answer = server.ask(&format!("GET {file}\nUser-Agent: {newest}"));
    let later = answer.header("retry-after");
    assert_eq!((answer.status, later), (503, None));
}
