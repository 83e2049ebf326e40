//! A client's request for a code, and what a person decides.

use std::sync::Arc;

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
        pages::{Page, PageLanguage, escape, redirect, sentence_page},
        router::ClientAddress,
    },
    consent_form::{ConsentForm, SERVER_FIELD, TOOL_FIELD, known_servers, known_tools},
    issuer_for_page,
    person::sign_in_page,
    record, signed_in_person,
};
use maru_auth::{
    AccessRole, ClientError, CodeRequest, Consent, DocumentReader, FormFields, OAuthClient,
    TokenIssuer, redirect_host, redirect_url,
};

/// A valid request of a known client.
pub(super) struct ClientRequest {
    pub(super) client: OAuthClient,
    pub(super) request: CodeRequest,
}

/// `GET /oauth/authorize`: checks the request, and goes on to the consent. The page in
/// between is the hub's own, so that the browser sends the hub's cookie.
pub(crate) async fn authorize(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = uri.query().unwrap_or_default();
    let checked = async {
        let issuer = issuer_for_page(&hub, language)?;
        read_request(&issuer, language, query).await
    };
    match checked.await {
        Ok(_) => Page::leading_to(language, &format!("/oauth/consent?{query}")).into_response(),
        Err(response) => *response,
    }
}

/// `GET /oauth/consent`: asks the person, who signs in first.
pub(crate) async fn ask(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = uri.query().unwrap_or_default();
    let checked = async {
        let issuer = issuer_for_page(&hub, language)?;
        let asked = read_request(&issuer, language, query).await?;
        Ok::<_, Box<Response>>((issuer, asked))
    };
    let (issuer, asked) = match checked.await {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let page = match signed_in_person(&hub, &headers) {
        Some(person) => {
            let token = issuer.form_token(&person.session, query);
            let form = ConsentForm {
                language,
                query,
                token: &token,
                requested: issuer.role_of(&asked.request.scope),
                servers: known_servers(&hub, &person),
                tools: known_tools(&hub, &person),
            };
            form.page(&asked, &person)
        }
        None => sign_in_page(&hub, language, query, None),
    };
    page.into_response()
}

/// `POST /oauth/consent`: what the person decided.
pub(crate) async fn decide(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    FormBody(form): FormBody,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = form.get("query").unwrap_or_default();
    let checked = async {
        let issuer = issuer_for_page(&hub, language)?;
        let asked = read_request(&issuer, language, query).await?;
        Ok::<_, Box<Response>>((issuer, asked))
    };
    let (issuer, asked) = match checked.await {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let person = signed_in_person(&hub, &headers);
    let token = form.get("form_token").unwrap_or_default();
    let person = person.filter(|it| issuer.is_form_token(token, &it.session, query));
    let Some(person) = person else {
        let text = language.pick(
            "This page is no longer valid. Go back to the application and start again.",
            "이 페이지는 더 이상 유효하지 않습니다. 애플리케이션으로 돌아가 다시 시작하십시오.",
        );
        return sentence_page(StatusCode::FORBIDDEN, language, text);
    };
    if form.get("decision") != Some("allow") {
        let denied = ("access_denied", "the person did not allow it");
        return redirect_error(&issuer, &asked.request, denied);
    }
    let requested = form.get("role").and_then(AccessRole::parse);
    let consent = Consent {
        account: person.principal.name(),
        account_hash: person.account_hash,
        role: requested
            .unwrap_or(AccessRole::Reader)
            .min(person.principal.role()),
        servers: match form.get("servers") {
            Some("all") => None,
            _ => Some(form.names_after(SERVER_FIELD)),
        },
        tools: (form.get("tools") == Some("some")).then(|| form.names_after(TOOL_FIELD)),
    };
    let what = ("POST /oauth/consent", asked.client.metadata.name.as_str());
    if let Err(response) = record(&hub, person.principal.name(), address, what).await {
        return *response;
    }
    match issuer.grant(&asked.client, &asked.request, &consent).await {
        Ok(code) => {
            let state = asked.request.state.as_deref();
            let base = issuer.base_url();
            let parameters = [("code", code.as_str())];
            redirect(&redirect_url(
                &asked.request.redirect_uri,
                &parameters,
                state,
                base,
            ))
        }
        Err(error) => {
            tracing::error!("failed to save a consent: {error}");
            let unavailable = ("temporarily_unavailable", "the store does not answer");
            redirect_error(&issuer, &asked.request, unavailable)
        }
    }
}

/// Reads the request of `query`. An error is a page: anybody may register a client, so
/// that a link to the hub sends nobody elsewhere before that person decides.
async fn read_request(
    issuer: &TokenIssuer,
    language: PageLanguage,
    query: &str,
) -> Result<ClientRequest, Box<Response>> {
    let refuse = |text: &str| Box::new(sentence_page(StatusCode::BAD_REQUEST, language, text));
    let fields = FormFields::parse(query).ok_or_else(|| {
        refuse(language.pick(
            "The link to this page is not valid.",
            "이 페이지의 링크가 올바르지 않습니다.",
        ))
    })?;
    let id = fields.get("client_id").unwrap_or_default();
    let found = issuer.clients().find(id, DocumentReader::ConsentPage);
    let client = match found.await {
        Ok(client) => client,
        Err(error @ ClientError::Unavailable(_)) => {
            tracing::info!("a client cannot be checked: {error}");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(Box::new(sentence_page(
                status,
                language,
                &error.to_string(),
            )));
        }
        Err(ClientError::Store(error)) => {
            tracing::error!("failed to read a client: {error}");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let text = ClientError::Store(error).to_string();
            return Err(Box::new(sentence_page(status, language, &text)));
        }
        Err(error) => {
            tracing::info!("a client is refused: {error}");
            let hint = language.pick(
                "Remove the connection in the application and add it again.",
                "애플리케이션에서 연결을 지우고 다시 추가하십시오.",
            );
            return Err(refuse(&format!("{error}. {hint}")));
        }
    };
    if !client.has_redirect(&fields) {
        return Err(refuse(language.pick(
            "The application wants you sent to an address that it did not register. Nothing was allowed.",
            "애플리케이션이 등록하지 않은 주소로 보내려고 합니다. 아무것도 허용하지 않았습니다.",
        )));
    }
    match issuer.parse_request(&fields) {
        Ok(request) => Ok(ClientRequest { client, request }),
        Err(error) => {
            let url = redirect_url(
                fields.get("redirect_uri").unwrap_or_default(),
                &[
                    ("error", error.code),
                    ("error_description", error.description),
                ],
                fields.get("state"),
                issuer.base_url(),
            );
            Err(Box::new(error_page(language, error.description, &url)))
        }
    }
}

/// A page that says what is wrong with a client's request, and leads back to the client.
fn error_page(language: PageLanguage, description: &str, url: &str) -> Response {
    let (problem, back) = match language {
        PageLanguage::English => (
            "The request of the application is not valid",
            "Go back to the application at",
        ),
        PageLanguage::Korean => (
            "애플리케이션의 요청이 올바르지 않습니다",
            "애플리케이션으로 돌아가기:",
        ),
    };
    let (description, link) = (escape(description), escape(url));
    let host = escape(redirect_host(url));
    let body = format!(
        "<p>{problem}: {description}</p><p><a href=\"{link}\" rel=\"noreferrer\">{back} {host}</a></p>"
    );
    let page = Page {
        status: StatusCode::BAD_REQUEST,
        ..Page::new(language, "maru", body)
    };
    page.into_response()
}

fn redirect_error(
    issuer: &TokenIssuer,
    request: &CodeRequest,
    (code, description): (&str, &str),
) -> Response {
    let parameters = [("error", code), ("error_description", description)];
    redirect(&redirect_url(
        &request.redirect_uri,
        &parameters,
        request.state.as_deref(),
        issuer.base_url(),
    ))
}
