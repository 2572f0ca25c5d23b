//! The proxy itself: what it counts, and what each fault looks like to a client without retries.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use support::proxy::{Fault, Proxy, Schedule, Slowness};

/// A server that answers every request with `body`, and the requests that reach it.
fn echo(body: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut bytes = [0; 4096];
            let count = client.read(&mut bytes).unwrap();
            let asked = String::from_utf8_lossy(bytes.get(..count).unwrap()).into_owned();
            if told.send(asked).is_err() {
                return;
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    (endpoint, heard)
}

/// What a client without retries receives: all bytes, and whether the connection broke.
fn ask(proxy: &Proxy, request: &str) -> (String, bool) {
    let address = proxy.endpoint();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return (String::from_utf8(answer).unwrap(), false),
            Ok(count) => answer.extend_from_slice(bytes.get(..count).unwrap()),
            Err(_) => return (String::from_utf8(answer).unwrap(), true),
        }
        if request.contains("stall") {
            stream.shutdown(Shutdown::Write).unwrap();
        }
    }
}

const GET: &str = "GET /tests/x?y=1 HTTP/1.1\r\nHost: as.sent\r\nConnection: close\r\n\r\n";

#[test]
fn it_passes_what_is_signed_as_it_came_and_counts() {
    let (endpoint, heard) = echo("0123456789");
    let proxy = Proxy::new(&endpoint, Slowness::default());
    let (answer, broken) = ask(&proxy, GET);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.ends_with("\r\n\r\n0123456789") && !broken,
        "{answer}"
    );
    assert!(heard.recv().unwrap().contains("host: as.sent\r\n"));
    let traffic = proxy.take();
    assert_eq!(traffic.requests(), 1);
    assert_eq!(traffic.received(), answer.len() as u64);
    assert!(traffic.sent() >= GET.len() as u64, "{traffic:?}");
    assert_eq!(traffic.with(&["GET", "/tests/x?y=1"]).requests(), 1);
    assert_eq!(proxy.take().requests(), 0);
}

#[test]
fn faults_are_what_their_names_say() {
    let (endpoint, heard) = echo("0123456789");
    let proxy = Proxy::new(&endpoint, Slowness::default());
    for (fault, head, broken, reaches) in [
        (
            Fault::Busy,
            "HTTP/1.1 503 SlowDown\r\nretry-after: 0",
            false,
            false,
        ),
        (
            Fault::TooMany,
            "HTTP/1.1 429 TooManyRequests\r\nretry-after: 0",
            false,
            false,
        ),
        (
            Fault::Broken,
            "HTTP/1.1 500 InternalError\r\n",
            false,
            false,
        ),
        (
            Fault::Expired,
            "HTTP/1.1 403 ExpiredToken\r\n",
            false,
            false,
        ),
        (Fault::Reset, "", true, false),
        (Fault::Lost, "", true, true),
        (Fault::Truncated, "HTTP/1.1 200 OK\r\n", true, true),
    ] {
        proxy.set(Schedule::first(&["GET", "/x"], fault));
        let (answer, was_broken) = ask(&proxy, GET);
        assert!(
            answer.starts_with(head) && answer.is_empty() == head.is_empty(),
            "{fault:?}: {answer}"
        );
        assert_eq!(was_broken, broken, "{fault:?}: {answer}");
        assert_eq!(heard.try_recv().is_ok(), reaches, "{fault:?}");
        assert!(!answer.contains("56789"), "{fault:?}: {answer}");
        let (answer, was_broken) = ask(&proxy, GET);
        assert!(
            answer.ends_with("0123456789") && !was_broken,
            "{fault:?} is over: {answer}"
        );
        heard.recv().unwrap();
        assert_eq!(proxy.take().faults(), 1);
    }
}

#[test]
fn a_stalled_body_waits_for_the_client_to_give_up() {
    let (endpoint, _heard) = echo("0123456789");
    let proxy = Proxy::new(&endpoint, Slowness::default());
    proxy.set(Schedule::From(1, Fault::Stalled));
    let (answer, _broken) = ask(&proxy, &GET.replace("/x", "/stall"));
    assert!(answer.ends_with("\r\n\r\n01234"), "{answer}");
}

#[test]
fn dice_fall_the_same_for_the_same_seed() {
    let faults = |seed| {
        let (endpoint, heard) = echo("");
        let proxy = Proxy::new(&endpoint, Slowness::default());
        let mut schedule = Schedule::dice(seed, 500);
        if let Schedule::Dice(_, _, faults) = &mut schedule {
            faults.retain(|fault| *fault != Fault::Stalled);
        }
        proxy.set(schedule);
        for _ in 0..20 {
            ask(&proxy, GET);
        }
        drop(heard);
        let fate = proxy.take().0.into_iter().map(|passed| passed.fault);
        fate.collect::<Vec<_>>()
    };
    assert_eq!(faults(1), faults(1));
    assert_ne!(faults(1), faults(2));
}

#[test]
fn a_late_listing_lacks_what_was_written_last() {
    let listing = "<R><Contents><Key>p/old</Key></Contents><Contents><Key>p/new</Key><Size>1</Size></Contents></R>";
    let (endpoint, _heard) = echo(listing);
    let proxy = Proxy::new(&endpoint, Slowness::default());
    ask(
        &proxy,
        "PUT /tests/p/new HTTP/1.1\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
    );
    let list = "GET /tests?list-type=2&prefix=p HTTP/1.1\r\nConnection: close\r\n\r\n";
    proxy.set(Schedule::first(&["list-type=2"], Fault::Late));
    let (late, _) = ask(&proxy, list);
    assert!(
        late.ends_with("<R><Contents><Key>p/old</Key></Contents></R>"),
        "{late}"
    );
    assert!(ask(&proxy, list).0.ends_with(listing));
}
