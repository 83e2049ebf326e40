//! The pages on which people sign in, and choose a passphrase after an invitation.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::Response,
};

use super::{
    super::{
        HubState,
        body::FormBody,
        console,
        pages::{Page, PageLanguage, escape, redirect, sentence_page},
        router::ClientAddress,
    },
    counted_address, record,
};
use maru_auth::{AccountError, Accounts, BearerToken, FormFields, encode_value};
use maru_observability::{audit::AuditedChange, journal::RequestId};

/// `POST /oauth/sign-in`: `name`, `passphrase`, and the `query` of a request that waits for
/// a consent.
pub(crate) async fn sign_in(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    FormBody(form): FormBody,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = form.get("query").unwrap_or_default();
    let name = form.get("name").unwrap_or_default();
    let passphrase = form.get("passphrase").unwrap_or_default();
    match sign_in_to_account(&hub, address, name, passphrase).await {
        Ok(account_hash) => {
            let next = if query.is_empty() {
                "/".to_owned()
            } else {
                format!("/oauth/consent?{query}")
            };
            console::signed_in_response(&hub, account_hash, redirect(&next)).await
        }
        Err(error) => {
            let page = Page {
                status: status_of(&error),
                ..sign_in_page(&hub, language, query, Some(&error_text(language, &error)))
            };
            page.into_response()
        }
    }
}

/// Signs a person in, and records that; returns the hash that stands for the account.
pub(crate) async fn sign_in_to_account(
    hub: &HubState,
    address: ClientAddress,
    name: &str,
    passphrase: &str,
) -> Result<[u8; 32], AccountError> {
    let from = counted_address(hub, address);
    let passphrase = passphrase.to_owned();
    let signed_in = hub
        .accounts
        .sign_in(&hub.access, from, name, passphrase)
        .await;
    let mut change = AuditedChange {
        principal: name,
        remote_ip: address.0,
        action: "sign in".to_owned(),
        target: name,
        arguments: String::new(),
        status: StatusCode::OK.as_u16(),
        duration: Duration::ZERO,
        request_id: RequestId::next().to_string(),
    };
    if let Err(error) = &signed_in {
        tracing::info!("a sign-in failed: {error}");
        change.status = status_of(error).as_u16();
    }
    // Not more than a limited number in a minute.
    if !matches!(signed_in, Err(AccountError::TooMany)) {
        hub.audit.record_rejected(&change);
    }
    signed_in
}

/// The page on which a person signs in, before a consent.
pub(super) fn sign_in_page(
    hub: &HubState,
    language: PageLanguage,
    query: &str,
    error: Option<&str>,
) -> Page {
    let title = language.pick("Sign in to maru", "maru에 로그인");
    let error = error.map_or(String::new(), |it| {
        format!("<p class=\"error\" role=\"alert\">{}</p>", escape(it))
    });
    let (name, passphrase, button) = match language {
        PageLanguage::English => ("Name", "Passphrase", "Sign in"),
        PageLanguage::Korean => ("이름", "암호", "로그인"),
    };
    let hint = language.pick(
        "You have a token instead of an account? Sign in to the console with it first, then go back and start again.",
        "계정 대신 토큰이 있으면 먼저 콘솔에 로그인한 다음, 돌아가서 다시 시작하십시오.",
    );
    let console = language.pick("Open the console", "콘솔 열기");
    let issuer = if hub.oidc.is_some() {
        let text = language.pick("Sign in with the company's account", "회사 계정으로 로그인");
        let value = encode_value(query);
        format!("<p><a href=\"/oauth/oidc?query={value}\">{text}</a></p>")
    } else {
        String::new()
    };
    let query = escape(query);
    let body = format!(
        "<h1>{title}</h1>{error}{issuer}<form method=\"post\" action=\"/oauth/sign-in\">\
         <input type=\"hidden\" name=\"query\" value=\"{query}\">\
         <label class=\"field\">{name}<input type=\"text\" name=\"name\" autocomplete=\"username\" required autofocus></label>\
         <label class=\"field\">{passphrase}<input type=\"password\" name=\"passphrase\" autocomplete=\"current-password\" required></label>\
         <div class=\"actions\"><button class=\"main\">{button}</button></div></form>\
         <p class=\"soft\" style=\"margin-top:20px\">{hint} <a href=\"/\">{console}</a></p>"
    );
    Page::new(language, title, body)
}

/// `GET /oauth/invitation?code=…`: asks for a passphrase.
pub(crate) async fn show_invitation(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = FormFields::parse(uri.query().unwrap_or_default()).unwrap_or_default();
    let code = query.get("code").unwrap_or_default();
    match hub.accounts.invited(&BearerToken::from(code)).await {
        Ok(name) => invitation_page(language, code, &name, None).into_response(),
        Err(error) => sentence_page(status_of(&error), language, &error_text(language, &error)),
    }
}

/// `POST /oauth/invitation`: `code`, and the `passphrase` twice.
pub(crate) async fn accept_invitation(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    FormBody(form): FormBody,
) -> Response {
    let language = PageLanguage::of(&headers);
    let code = form.get("code").unwrap_or_default();
    let invitation = BearerToken::from(code);
    let name = match hub.accounts.invited(&invitation).await {
        Ok(name) => name,
        Err(error) => {
            return sentence_page(status_of(&error), language, &error_text(language, &error));
        }
    };
    let again = |text: &str| {
        let page = Page {
            status: StatusCode::BAD_REQUEST,
            ..invitation_page(language, code, &name, Some(text))
        };
        page.into_response()
    };
    let passphrase = form.get("passphrase").unwrap_or_default().to_owned();
    if form.get("repeated") != Some(passphrase.as_str()) {
        return again(language.pick("The two passphrases differ.", "두 암호가 서로 다릅니다."));
    }
    if !Accounts::is_acceptable(&passphrase) {
        return again(&error_text(language, &AccountError::Passphrase));
    }
    let what = ("POST /oauth/invitation", name.as_str());
    if let Err(response) = record(&hub, &name, address, what).await {
        return *response;
    }
    let accepted = hub
        .accounts
        .accept(&hub.access, &hub.sessions, &invitation, passphrase);
    let accepted = accepted.await;
    if let Ok(name) = &accepted {
        hub.engine.end_sessions_of(name);
    }
    match accepted {
        Ok(name) => match hub.access.hash_of_name(&name) {
            Some(hash) => console::signed_in_response(&hub, hash, redirect("/")).await,
            None => {
                let text = language.pick(
                    "This account was revoked or has expired. Ask an admin of the hub.",
                    "이 계정은 폐기되었거나 만료되었습니다. 허브 관리자에게 문의하십시오.",
                );
                sentence_page(StatusCode::FORBIDDEN, language, text)
            }
        },
        Err(error) => sentence_page(status_of(&error), language, &error_text(language, &error)),
    }
}

fn invitation_page(language: PageLanguage, code: &str, name: &str, error: Option<&str>) -> Page {
    let title = language.pick("Choose a passphrase", "암호 정하기");
    let error = error.map_or(String::new(), |it| {
        format!("<p class=\"error\" role=\"alert\">{}</p>", escape(it))
    });
    let (passphrase, repeated, button, hint) = match language {
        PageLanguage::English => (
            "Passphrase",
            "Passphrase once more",
            "Save and sign in",
            "At least 12 characters; some words in a row are easy to remember.",
        ),
        PageLanguage::Korean => (
            "암호",
            "암호 다시 입력",
            "저장하고 로그인",
            "12자 이상이어야 합니다. 낱말 몇 개를 이어 쓰면 기억하기 쉽습니다.",
        ),
    };
    let intro = match language {
        PageLanguage::English => format!("Your account at this hub is called {}.", escape(name)),
        PageLanguage::Korean => format!("이 허브의 계정 이름은 {}입니다.", escape(name)),
    };
    let (code, name) = (escape(code), escape(name));
    let body = format!(
        "<h1>{title}</h1><p>{intro}</p>{error}<form method=\"post\" action=\"/oauth/invitation\">\
         <input type=\"hidden\" name=\"code\" value=\"{code}\">\
         <input type=\"text\" name=\"name\" value=\"{name}\" autocomplete=\"username\" hidden readonly>\
         <label class=\"field\">{passphrase}<input type=\"password\" name=\"passphrase\" minlength=\"12\" autocomplete=\"new-password\" required autofocus></label>\
         <label class=\"field\">{repeated}<input type=\"password\" name=\"repeated\" minlength=\"12\" autocomplete=\"new-password\" required></label>\
         <p class=\"soft\">{hint}</p><div class=\"actions\"><button class=\"main\">{button}</button></div></form>"
    );
    Page::new(language, title, body)
}

pub(crate) fn status_of(error: &AccountError) -> StatusCode {
    match error {
        AccountError::Token(_) | AccountError::Passphrase => StatusCode::BAD_REQUEST,
        AccountError::Unknown | AccountError::InvalidInvitation => StatusCode::NOT_FOUND,
        AccountError::WrongPassphrase => StatusCode::FORBIDDEN,
        AccountError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        AccountError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn error_text(language: PageLanguage, error: &AccountError) -> String {
    let korean = match error {
        AccountError::InvalidInvitation => {
            "이미 사용했거나 만료된 초대입니다. 새 초대를 요청하십시오."
        }
        AccountError::Passphrase => "암호는 12자 이상 1024자 이하여야 합니다.",
        AccountError::WrongPassphrase => "이름이나 암호가 틀렸습니다.",
        AccountError::TooMany => "시도가 너무 많습니다. 1분 뒤에 다시 시도하십시오.",
        AccountError::Store(_) => "저장소가 응답하지 않습니다. 잠시 뒤에 다시 시도하십시오.",
        AccountError::Token(_) | AccountError::Unknown => "없는 계정입니다.",
    };
    match (language, error) {
        (PageLanguage::Korean, _) => korean.to_owned(),
        (PageLanguage::English, AccountError::Store(error)) => error.public_message(),
        (PageLanguage::English, error) => error.to_string(),
    }
}
