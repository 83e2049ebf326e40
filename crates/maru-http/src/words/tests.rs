use proptest::prelude::*;

use super::*;

const END: &str = "\r\n\r\n";

/// Status, body, whether the connection is kept, and what was left unread.
type Seen = (StatusCode, Vec<u8>, bool, usize);

/// Reads an answer that comes in pieces of `size` bytes, as a line does.
fn read(whole: &[u8], size: usize) -> Result<Option<Seen>, Malformed> {
    let (mut buffer, mut known) = (BytesMut::new(), 0);
    let (mut begun, mut body) = (None, Vec::new());
    for piece in whole.chunks(size) {
        buffer.extend_from_slice(piece);
        if begun.is_none() {
            begun = Head::take(&mut buffer, known)?;
            known = buffer.len();
        }
        let Some((head, rest)) = &mut begun else {
            continue;
        };
        loop {
            match rest.body.next(&mut buffer)? {
                Piece::Data(data) => body.extend_from_slice(&data),
                Piece::Unread => break,
                Piece::End if size < whole.len() => break,
                Piece::End => return Ok(Some((head.status, body, rest.keeps, buffer.len()))),
            }
        }
    }
    Ok(begun
        .filter(|(_, rest)| matches!(rest.body, Body::ToEnd | Body::Length(0)))
        .map(|(head, rest)| (head.status, body, rest.keeps, buffer.len())))
}

/// However it is cut, an answer of `head` and `rest` has this body; `keeps` tells
/// whether another may follow.
fn check(head: &str, rest: &str, body: &str, keeps: bool) {
    let whole = format!("HTTP/1.1 200 OK\r\n{head}{END}{rest}");
    for size in 1..=whole.len() {
        let seen = read(whole.as_bytes(), size).unwrap().unwrap();
        let expected = (StatusCode::OK, body.as_bytes().to_vec(), keeps, 0);
        assert_eq!(seen, expected, "{whole:?} in pieces of {size}");
    }
}

fn check_malformed(whole: &str) {
    for size in [1, 7, whole.len()] {
        assert_eq!(read(whole.as_bytes(), size), Err(Malformed), "{whole:.99?}");
    }
}

#[test]
fn bodies_end_where_they_say() {
    check("content-length: 5", "hello", "hello", true);
    check(
        "Content-Length: 5\r\ncontent-length: 5",
        "hello",
        "hello",
        true,
    );
    check("content-length: 0", "", "", true);
    check(
        "content-length: 5\r\nconnection: x, Close",
        "hello",
        "hello",
        false,
    );
    check(
        "transfer-encoding: chunked",
        "5\r\nhello\r\n0\r\n\r\n",
        "hello",
        true,
    );
    check(
        "Transfer-Encoding: gzip, Chunked",
        "2;a=b\r\nhe\r\n03\r\nllo\r\n0\r\nx: y\r\n\r\n",
        "hello",
        true,
    );
    check("x: y", "to the end", "to the end", false);
    check("transfer-encoding: gzip", "to the end", "to the end", false);
}

#[test]
fn a_length_and_chunks_end_the_connection() {
    let both = "content-length: 3\r\ntransfer-encoding: chunked";
    check(both, "5\r\nhello\r\n0\r\n\r\n", "hello", false);
}

#[test]
fn answers_without_a_body_have_none() {
    for status in [204, 304] {
        let whole = format!("HTTP/1.1 {status} \r\ncontent-length: 9{END}");
        let (_, body, keeps, left) = read(whole.as_bytes(), 4).unwrap().unwrap();
        assert_eq!((body.len(), keeps, left), (0, true, 0));
    }
}

#[test]
fn an_older_server_keeps_a_connection_only_if_it_says_so() {
    let keeps = |more: &str| {
        let whole = format!("HTTP/1.0 200 OK\r\ncontent-length: 1{more}{END}x");
        read(whole.as_bytes(), 3).unwrap().unwrap().2
    };
    assert!(!keeps(""));
    assert!(keeps("\r\nConnection: Keep-Alive"));
    check_malformed(&format!(
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked{END}"
    ));
}

#[test]
fn what_comes_before_the_answer_is_passed_over() {
    let whole = format!(
        "HTTP/1.1 100 Continue{END}HTTP/1.1 103 Early Hints\r\nlink: x{END}HTTP/1.1 201 Created\r\ncontent-length: 2{END}ok"
    );
    for size in 1..=whole.len() {
        let (status, body, ..) = read(whole.as_bytes(), size).unwrap().unwrap();
        assert_eq!((status, &*body), (StatusCode::CREATED, &b"ok"[..]));
    }
    check_malformed(&format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x{END}"
    ));
}

#[test]
fn what_is_more_than_was_said_is_left() {
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: 2{END}ok, and more");
    assert_eq!(read(whole.as_bytes(), 999).unwrap().unwrap().3, 10);
}

#[test]
fn nonsense_is_refused_and_nothing_grows_without_end() {
    let answer = |head: &str, rest: &str| format!("HTTP/1.1 200 OK\r\n{head}{END}{rest}");
    let chunked = |rest: &str| answer("transfer-encoding: chunked", rest);
    check_malformed("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    check_malformed(&answer("content-length: 1\r\ncontent-length: 2", ""));
    for length in ["-1", "+1", "1, 1", "0x1", "", "99999999999999999999"] {
        check_malformed(&answer(&format!("content-length: {length}"), ""));
    }
    for rest in ["x\r\n", "5\r\nhelloX\r", "\r\n", "10000000000000000\r\n"] {
        check_malformed(&chunked(rest));
    }
    check_malformed(&format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD)));
    check_malformed(&"\r\n".repeat(MAX_HEAD));
    check_malformed(&answer(&"x: y\r\n".repeat(MAX_HEADERS + 1), "x: y"));
    check_malformed(&chunked(&format!("5;{}", "x".repeat(MAX_LINE))));
    check_malformed(&chunked(&format!("0\r\n{}", "x: y\r\n".repeat(MAX_LINE))));
    check_malformed(&chunked(&format!("0\r\nx: {}", "y".repeat(MAX_LINE))));
}

#[test]
fn headers_are_found_by_any_case() {
    let text = format!("HTTP/1.1 200 OK\r\nMCP-Session-Id: 5\r\nX: \u{e9}\r\nx: z{END}");
    let (head, _) = Head::take(&mut text.as_bytes().into(), 0).unwrap().unwrap();
    assert_eq!(
        head.header(&HeaderName::from_static("mcp-session-id")),
        Some("5")
    );
    assert_eq!(head.header(&HeaderName::from_static("x")), Some("\u{e9}"));
    assert_eq!(head.header(&HeaderName::from_static("y")), None);
}

#[test]
fn a_request_is_written_with_its_own_headers_first() {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("h:1"));
    headers.insert("mcp-name", HeaderValue::from_static("usual"));
    let more = [(
        HeaderName::from_static("mcp-name"),
        HeaderValue::from_static("own"),
    )];
    let mut request = Request {
        method: &Method::POST,
        uri: &"/mcp?x=1".parse().unwrap(),
        headers: &headers,
        more: &more,
        body: &Bytes::from_static(b"{}"),
    };
    let text = |it: &Request<'_>| String::from_utf8(it.head(0)).unwrap();
    assert_eq!(
        text(&request),
        "POST /mcp?x=1 HTTP/1.1\r\nhost: h:1\r\nmcp-name: own\r\ncontent-length: 2\r\n\r\n"
    );
    let empty = Bytes::new();
    (request.body, request.more) = (&empty, &[]);
    assert!(text(&request).ends_with("usual\r\ncontent-length: 0\r\n\r\n"));
    request.method = &Method::GET;
    assert!(text(&request).ends_with("usual\r\n\r\n"));
}

proptest! {
    /// Nothing that a server sends makes it fail in another way than `Malformed`,
    /// and how it is cut does not matter.
    #[test]
    fn any_bytes_in_any_cut(
        parts in prop::collection::vec(
            prop_oneof![
                Just("HTTP/1.1 200 OK\r\n".to_owned()),
                Just("transfer-encoding: chunked\r\n".to_owned()),
                Just("content-length: 4\r\n".to_owned()),
                Just("\r\n".to_owned()),
                Just("4\r\nabcd\r\n".to_owned()),
                Just("0\r\n\r\n".to_owned()),
                ".{0,6}",
            ],
            0..12,
        ),
        size in 1_usize..40,
    ) {
        let whole = format!("HTTP/1.1 200 OK\r\n{}", parts.concat());
        let cut = read(whole.as_bytes(), size);
        let at_once = read(whole.as_bytes(), whole.len());
        if let (Ok(Some(cut)), Ok(Some(at_once))) = (cut, at_once) {
            prop_assert_eq!((cut.0, cut.1, cut.2), (at_once.0, at_once.1, at_once.2));
        }
    }
}
