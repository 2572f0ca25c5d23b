//! AWS signatures, version 4: in the header `Authorization`, or in the query of a presigned URL.
//!
//! The signature of the request's canonical form is computed with the key's secret and compared in constant time. Paths
//! and queries are decoded and encoded again, since clients escape different characters. Any region is accepted. Bodies
//! are not verified, since no operation takes one.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, DATE};
use hyper::http::request::Parts;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{percent_decode_str, percent_encode};
use ring::hmac;
use sha2::{Digest, Sha256};

use crate::serve::s3::fault::{Fault, Outcome};
use crate::serve::s3::keys::{Key, Keys};
use crate::serve::text::{self, hex, unhex};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const SERVICE: &str = "s3";
const END: &str = "aws4_request";
/// Maximum difference between the clocks of client and server.
const SKEW: SignedDuration = SignedDuration::from_mins(15);
/// Maximum validity of a presigned URL.
const EXPIRES_SECS_MAX: i64 = 7 * 24 * 60 * 60;
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// The parameters of a signature.
struct Claim {
    id: String,
    /// Date, region, service, and a constant.
    scope: [String; 4],
    /// The signed headers.
    names: Vec<String>,
    signature: String,
    time: Timestamp,
    payload: String,
    /// The validity of a presigned URL in seconds.
    expires_secs: Option<i64>,
}

/// The key that signed a request.
///
/// # Errors
/// If the request is not signed, the key is unknown, or the signature is wrong or expired.
pub(crate) fn check<'k>(head: &Parts, keys: &'k Keys, now: Timestamp) -> Outcome<&'k Key> {
    if head.headers.get_all(AUTHORIZATION).iter().count() > 1 {
        return Err(Fault::request("More than one Authorization."));
    }
    let query = text::pairs(head.uri.query().unwrap_or_default());
    let claim = match head.headers.get(AUTHORIZATION) {
        Some(value) => of_header(value.to_str().unwrap_or_default(), &head.headers)?,
        None if text::value(&query, "X-Amz-Algorithm").is_some() => of_query(&query)?,
        None if text::value(&query, "AWSAccessKeyId").is_some() => return Err(other_mechanism()),
        None => {
            return Err(Fault::denied(
                "Access Denied: this endpoint wants signatures.",
            ));
        }
    };
    let Some(key) = keys.find(&claim.id) else {
        let message = "The AWS Access Key Id you provided does not exist in our records.";
        let fault = Fault::new(hyper::StatusCode::FORBIDDEN, "InvalidAccessKeyId", message);
        return Err(fault.and("AWSAccessKeyId", &claim.id));
    };
    claim.check_time(now)?;
    claim.check_headers(&head.headers)?;
    let signed = claim.text(head).ok_or_else(mismatch)?;
    let signature = unhex(&claim.signature).ok_or_else(mismatch)?;
    let made_by = claim.key(key.secret());
    hmac::verify(&made_by, signed.as_bytes(), &signature).map_err(|_| mismatch())?;
    Ok(key)
}

fn mismatch() -> Fault {
    let message = "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    Fault::new(
        hyper::StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
        message,
    )
}

fn other_mechanism() -> Fault {
    Fault::request(format!(
        "The authorization mechanism you have provided is not supported. Please use {ALGORITHM}."
    ))
}

fn malformed(message: &str) -> Fault {
    let message = format!("The authorization header is malformed; {message}");
    let status = hyper::StatusCode::BAD_REQUEST;
    Fault::new(status, "AuthorizationHeaderMalformed", message)
}

fn bad_query(message: &str) -> Fault {
    let status = hyper::StatusCode::BAD_REQUEST;
    Fault::new(status, "AuthorizationQueryParametersError", message)
}

/// Parses `AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., Signature=...`.
fn of_header(value: &str, headers: &HeaderMap) -> Outcome<Claim> {
    let fields = value.strip_prefix(ALGORITHM).ok_or_else(other_mechanism)?;
    let fields: Vec<(&str, &str)> = fields
        .split(',')
        .filter_map(|field| field.trim().split_once('='))
        .collect();
    let field = |name: &str| {
        let found = fields.iter().find(|(known, _)| *known == name);
        let missing = || malformed(&format!("it has no {name}."));
        found.map(|(_, value)| *value).ok_or_else(missing)
    };
    let (id, scope) = credential(field("Credential")?)
        .ok_or_else(|| malformed("the Credential is not KEY/DATE/REGION/s3/aws4_request."))?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let time = match text("x-amz-date") {
        Some(time) => parse_time(time),
        None => text(DATE.as_str()).and_then(parse_date),
    };
    let time = time.ok_or_else(|| {
        Fault::denied("AWS authentication requires a valid Date or x-amz-date header")
    })?;
    let payload = text("x-amz-content-sha256").ok_or_else(|| {
        Fault::request("Missing required header for this request: x-amz-content-sha256")
    })?;
    Ok(Claim {
        id,
        scope,
        names: names(field("SignedHeaders")?),
        signature: field("Signature")?.to_owned(),
        time,
        payload: payload.to_owned(),
        expires_secs: None,
    })
}

/// Parses `X-Amz-...` in the query.
fn of_query(query: &[(String, String)]) -> Outcome<Claim> {
    let field = |name: &str| {
        let missing = || bad_query(&format!("the query has no {name}."));
        text::value(query, name).ok_or_else(missing)
    };
    if field("X-Amz-Algorithm")? != ALGORITHM {
        return Err(other_mechanism());
    }
    let (id, scope) = credential(field("X-Amz-Credential")?)
        .ok_or_else(|| bad_query("X-Amz-Credential is not KEY/DATE/REGION/s3/aws4_request."))?;
    let time = parse_time(field("X-Amz-Date")?)
        .ok_or_else(|| bad_query("X-Amz-Date is not yyyymmddThhmmssZ."))?;
    let expires = field("X-Amz-Expires")?.parse().ok();
    let expires = expires.filter(|secs| (1..=EXPIRES_SECS_MAX).contains(secs));
    let expires =
        expires.ok_or_else(|| bad_query("X-Amz-Expires is not between 1 and 604800 seconds."))?;
    Ok(Claim {
        id,
        scope,
        names: names(field("X-Amz-SignedHeaders")?),
        signature: field("X-Amz-Signature")?.to_owned(),
        time,
        payload: text::value(query, "X-Amz-Content-Sha256")
            .unwrap_or(UNSIGNED)
            .to_owned(),
        expires_secs: Some(expires),
    })
}

fn credential(text: &str) -> Option<(String, [String; 4])> {
    let parts: Vec<&str> = text.split('/').collect();
    let [id, day, region, service, end] = parts.as_slice() else {
        return None;
    };
    let fits = !id.is_empty() && *service == SERVICE && *end == END;
    fits.then(|| {
        let scope = [*day, *region, *service, *end].map(str::to_owned);
        ((*id).to_owned(), scope)
    })
}

fn names(text: &str) -> Vec<String> {
    text.split(';').map(str::to_ascii_lowercase).collect()
}

fn parse_time(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime(TIME, text).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    (shown(time) == text).then_some(time)
}

fn parse_date(text: &str) -> Option<Timestamp> {
    let parser = DateTimeParser::new();
    parser
        .parse_timestamp(text)
        .ok()
        .or_else(|| parse_time(text))
}

fn shown(time: Timestamp) -> String {
    time.strftime(TIME).to_string()
}

impl Claim {
    fn check_time(&self, now: Timestamp) -> Outcome<()> {
        let age = now.duration_since(self.time);
        if let [day, ..] = &self.scope
            && !shown(self.time).starts_with(day.as_str())
        {
            return Err(malformed(
                "the day of the Credential is not that of the request.",
            ));
        }
        match self.expires_secs {
            Some(secs) if age > SignedDuration::from_secs(secs) => {
                Err(Fault::denied("Request has expired")
                    .and("X-Amz-Expires", secs.to_string())
                    .and("ServerTime", now.to_string()))
            }
            Some(_) if age < -SKEW => Err(Fault::denied("Request is not yet valid")),
            None if age.abs() > SKEW => {
                let message =
                    "The difference between the request time and the current time is too large.";
                let status = hyper::StatusCode::FORBIDDEN;
                Err(Fault::new(status, "RequestTimeTooSkewed", message)
                    .and("RequestTime", shown(self.time))
                    .and("ServerTime", now.to_string())
                    .and("MaxAllowedSkewMilliseconds", SKEW.as_millis().to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the signed headers include the host and all of S3's own headers.
    fn check_headers(&self, headers: &HeaderMap) -> Outcome<()> {
        let is_signed = |name: &str| self.names.iter().any(|signed| signed == name);
        let must = headers.keys().map(hyper::header::HeaderName::as_str);
        let must = must.filter(|name| name.starts_with("x-amz-"));
        match std::iter::once("host")
            .chain(must)
            .find(|name| !is_signed(name))
        {
            None => Ok(()),
            Some(name) => {
                let message = "There were headers present in the request which were not signed";
                Err(Fault::denied(message).and("HeadersNotSigned", name))
            }
        }
    }

    /// The text that is signed.
    fn text(&self, head: &Parts) -> Option<String> {
        let canonical = self.canonical(head)?;
        let (time, scope) = (shown(self.time), self.scope.join("/"));
        let digest = hex(&Sha256::digest(canonical));
        Some(format!("{ALGORITHM}\n{time}\n{scope}\n{digest}"))
    }

    fn canonical(&self, head: &Parts) -> Option<String> {
        let path: Vec<u8> = percent_decode_str(head.uri.path()).collect();
        let path = percent_encode(&path, text::PATH);
        let query = canonical_query(head.uri.query().unwrap_or_default());
        let mut headers = String::new();
        for name in &self.names {
            let mut values = Vec::new();
            for value in head.headers.get_all(name) {
                let value = std::str::from_utf8(value.as_bytes()).ok()?;
                values.push(value.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
            }
            if values.is_empty() {
                return None;
            }
            headers += &format!("{name}:{}\n", values.join(","));
        }
        let names = self.names.join(";");
        let (method, payload) = (&head.method, &self.payload);
        Some(format!(
            "{method}\n{path}\n{query}\n{headers}\n{names}\n{payload}"
        ))
    }

    /// Derives the signing key from the secret, date, region and service.
    fn key(&self, secret: &str) -> hmac::Key {
        let begin = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
        self.scope.iter().fold(begin, |key, part| {
            let tag = hmac::sign(&key, part.as_bytes());
            hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
        })
    }
}

/// The query in canonical form: escaped uniformly, sorted, without the signature.
fn canonical_query(query: &str) -> String {
    let plain = |text: &str| {
        let bytes: Vec<u8> = percent_decode_str(&text.replace('+', " ")).collect();
        percent_encode(&bytes, text::SEGMENT).to_string()
    };
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (plain(name), plain(value)))
        .filter(|(name, _)| name != "X-Amz-Signature")
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples that AWS publishes for S3.
    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const TIME: &str = "20130524T000000Z";
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = hyper::Request::builder().method(method).uri(uri);
        let request = request.header("host", "examplebucket.s3.amazonaws.com");
        let all = headers.iter();
        let request = all.fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        request.body(()).unwrap().into_parts().0
    }

    fn at(text: &str) -> Timestamp {
        parse_time(text).unwrap()
    }

    fn outcome(head: &Parts, now: &str) -> Result<String, &'static str> {
        let keys = Keys::of(ID, SECRET);
        let checked = check(head, &keys, at(now)).map(|key| key.id.clone());
        checked.map_err(|fault| fault.code)
    }

    fn signed(method: &str, uri: &str, headers: &[(&str, &str)], signature: &str) -> Parts {
        let mut names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        names.push("host");
        names.sort_unstable();
        let names = names.join(";");
        let authorization = format!(
            "{ALGORITHM} Credential={ID}/{SCOPE},SignedHeaders={names},Signature={signature}"
        );
        head(
            method,
            uri,
            &[headers, &[("authorization", &authorization)]].concat(),
        )
    }

    const GET: &str = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    const PLAIN: [(&str, &str); 2] = [("x-amz-content-sha256", EMPTY), ("x-amz-date", TIME)];

    fn get(signature: &str) -> Parts {
        let headers = [("range", "bytes=0-9"), PLAIN[0], PLAIN[1]];
        signed("GET", "/test.txt", &headers, signature)
    }

    #[test]
    fn the_published_examples_are_right() {
        let whole = Ok(ID.to_owned());
        assert_eq!(outcome(&get(GET), TIME), whole);
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            (
                "x-amz-content-sha256",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            ),
            ("x-amz-date", TIME),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        for path in ["/test$file.text", "/test%24file.text"] {
            assert_eq!(outcome(&signed("PUT", path, &put, signature), TIME), whole);
        }
        let lifecycle = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        let list = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        for (uri, signature) in [
            ("/?lifecycle", lifecycle),
            ("/?max-keys=2&prefix=J", list),
            ("/?prefix=J&max-keys=2", list),
        ] {
            assert_eq!(outcome(&signed("GET", uri, &PLAIN, signature), TIME), whole);
        }
    }

    fn presigned(expires: &str, signature: &str) -> Parts {
        let credential = format!("{ID}/{SCOPE}").replace('/', "%2F");
        let uri = format!(
            "/test.txt?X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={credential}&X-Amz-Date={TIME}\
             &X-Amz-Expires={expires}&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}"
        );
        head("GET", &uri, &[])
    }

    #[test]
    fn a_url_is_good_for_its_time() {
        let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let url = presigned("86400", signature);
        assert_eq!(outcome(&url, TIME), Ok(ID.to_owned()));
        assert_eq!(outcome(&url, "20130525T000000Z"), Ok(ID.to_owned()));
        assert_eq!(outcome(&url, "20130525T000001Z"), Err("AccessDenied"));
        assert_eq!(outcome(&url, "20130523T234459Z"), Err("AccessDenied"));
        let longer = presigned("86401", signature);
        assert_eq!(outcome(&longer, TIME), Err("SignatureDoesNotMatch"));
        for bad in ["604801", "0", "-1", "x"] {
            let url = presigned(bad, signature);
            assert_eq!(
                outcome(&url, TIME),
                Err("AuthorizationQueryParametersError")
            );
        }
    }

    #[test]
    fn whatever_was_changed_is_another_request() {
        let mismatch = Err("SignatureDoesNotMatch");
        for signature in [
            GET.replace('f', "e"),
            GET.to_uppercase(),
            String::new(),
            GET[..62].to_owned(),
        ] {
            assert_eq!(outcome(&get(&signature), TIME), mismatch, "{signature}");
        }
        let headers = [("range", "bytes=0-8"), PLAIN[0], PLAIN[1]];
        assert_eq!(
            outcome(&signed("GET", "/test.txt", &headers, GET), TIME),
            mismatch
        );
        let headers = [("range", "bytes=0-9"), PLAIN[0], PLAIN[1]];
        for (method, uri) in [
            ("HEAD", "/test.txt"),
            ("GET", "/test.txt?x"),
            ("GET", "/Test.txt"),
        ] {
            assert_eq!(
                outcome(&signed(method, uri, &headers, GET), TIME),
                mismatch,
                "{uri}"
            );
        }
    }

    #[test]
    fn clocks_may_be_a_quarter_of_an_hour_apart() {
        for (now, expected) in [
            ("20130524T001500Z", Ok(ID.to_owned())),
            ("20130523T234500Z", Ok(ID.to_owned())),
            ("20130524T001501Z", Err("RequestTimeTooSkewed")),
            ("20130523T234459Z", Err("RequestTimeTooSkewed")),
        ] {
            assert_eq!(outcome(&get(GET), now), expected, "{now}");
        }
    }

    #[test]
    fn what_is_no_signature_is_called_by_its_name() {
        let with = |value: &str| {
            let all = [&PLAIN[..], &[("authorization", value)]].concat();
            outcome(&head("GET", "/test.txt", &all), TIME)
        };
        let fields = |id: &str, scope: &str, names: &str| {
            with(&format!(
                "{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={GET}"
            ))
        };
        let names = "host;x-amz-content-sha256;x-amz-date";
        assert_eq!(with("AWS AKIA:c2ln"), Err("InvalidRequest"));
        assert_eq!(
            with("AWS4-ECDSA-P256-SHA256 Credential=a"),
            Err("InvalidRequest")
        );
        assert_eq!(with(ALGORITHM), Err("AuthorizationHeaderMalformed"));
        for (id, scope, names, code) in [
            ("nobody", SCOPE, names, "InvalidAccessKeyId"),
            (
                ID,
                "20130524/us-east-1/s3",
                names,
                "AuthorizationHeaderMalformed",
            ),
            (
                ID,
                "20130524/us-east-1/ec2/aws4_request",
                names,
                "AuthorizationHeaderMalformed",
            ),
            (
                ID,
                "20130523/us-east-1/s3/aws4_request",
                names,
                "AuthorizationHeaderMalformed",
            ),
            (ID, SCOPE, "x-amz-content-sha256;x-amz-date", "AccessDenied"),
            (ID, SCOPE, "host;x-amz-date", "AccessDenied"),
            (
                ID,
                SCOPE,
                "host;none;x-amz-content-sha256;x-amz-date",
                "SignatureDoesNotMatch",
            ),
        ] {
            assert_eq!(fields(id, scope, names), Err(code), "{id} {scope} {names}");
        }
        assert_eq!(outcome(&head("GET", "/", &[]), TIME), Err("AccessDenied"));
        assert_eq!(
            outcome(&head("GET", "/?AWSAccessKeyId=a&Signature=b", &[]), TIME),
            Err("InvalidRequest")
        );
    }
}
