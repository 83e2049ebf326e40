//! Where a PostgreSQL database is and who asks it: one address for the databases that
//! tools read and for the one that keeps maru's state.

#![forbid(unsafe_code)]

use std::error::Error as _;

use maru_runtime::SecretString;
use thiserror::Error;
use tokio_postgres::{
    Config,
    config::{Host, SslMode},
};

/// An address that can be tried. Its `Debug` leaves the password out.
#[derive(Clone, Debug)]
pub struct PostgresAddress {
    config: Config,
}

/// A database in parts.
#[derive(Clone, Debug)]
pub struct PostgresServer {
    /// Where it is.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who asks.
    pub user: String,
    /// The password of the user.
    pub password: SecretString,
    /// The database.
    pub database: String,
}

/// The address cannot be used as it is. The text quotes nothing of it, because the
/// password could be anywhere in what cannot be read.
#[derive(Debug, Error)]
pub enum Error {
    /// It is of another kind.
    #[error("the address does not start with postgres://")]
    Scheme,
    /// A name or a password has an `@` of its own.
    #[error("the address has more than one @; in a name or a password write %40")]
    UnescapedAt,
    /// One of its options has a value that it cannot have.
    #[error("the address has an {0}")]
    InvalidValue(String),
    /// Anything else, such as an option that does not exist.
    #[error("the address cannot be read; check its options")]
    Unreadable,
    /// It asks for encryption.
    #[error(
        "the address asks for TLS, which maru does not speak to PostgreSQL yet; \
         use sslmode=disable on a network that you trust"
    )]
    TlsNotSupported,
    /// It does not say where.
    #[error("the address names no host; example: postgres://user:password@localhost/maru")]
    NoHost,
}

impl PostgresAddress {
    /// Reads `postgres://user:password@host:port/database`.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let schemes = ["postgres://", "postgresql://"];
        if !schemes.iter().any(|it| url.starts_with(it)) {
            return Err(Error::Scheme);
        }
        if url.matches('@').count() > 1 {
            return Err(Error::UnescapedAt);
        }
        let config: Config = url.parse().map_err(|error| parse_error(&error))?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(Error::TlsNotSupported);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::NoHost);
        }
        Ok(Self { config })
    }

    /// Every host and host address that a connection may go to; a path is a socket.
    pub fn hosts(&self) -> Vec<String> {
        let addresses = self.config.get_hostaddrs().iter().map(|it| it.to_string());
        let names = self.config.get_hosts().iter().map(host_name);
        names.chain(addresses).collect()
    }

    /// Host, port and database, for people.
    pub fn redacted_location(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let port = |at: usize| ports.get(at).or(ports.first()).unwrap_or(&5432);
        let hosts: Vec<String> = match config.get_hosts() {
            [] => config
                .get_hostaddrs()
                .iter()
                .map(|it| it.to_string())
                .collect(),
            hosts => hosts.iter().map(host_name).collect(),
        };
        let hosts = hosts.iter().enumerate();
        let hosts: Vec<String> = hosts
            .map(|(at, host)| format!("{host}:{}", port(at)))
            .collect();
        let database = config.get_dbname().or(config.get_user());
        let database = database.unwrap_or("(default)");
        format!("in PostgreSQL at {}, database {database}", hosts.join(","))
    }

    /// For a connection with these settings; those in the address win.
    pub fn config_with_defaults(&self, settings: &[(&str, &str)]) -> Config {
        let given = self.config.get_options().map(str::to_owned);
        self.config_with_options(option_texts(settings).chain(given))
    }

    /// For a connection with these settings, whatever the address says.
    pub fn config_with_overrides(&self, settings: &[(&str, &str)]) -> Config {
        let given = self.config.get_options().map(str::to_owned);
        self.config_with_options(given.into_iter().chain(option_texts(settings)))
    }

    fn config_with_options(&self, options: impl Iterator<Item = String>) -> Config {
        let options: Vec<String> = options.collect();
        let mut config = self.config.clone();
        config.options(options.join(" "));
        config
    }
}

impl From<&PostgresServer> for PostgresAddress {
    fn from(server: &PostgresServer) -> Self {
        let mut config = Config::new();
        config
            .host(&server.host)
            .port(server.port)
            .user(&server.user)
            .password(server.password.reveal())
            .dbname(&server.database);
        Self { config }
    }
}

fn option_texts(settings: &[(&str, &str)]) -> impl Iterator<Item = String> {
    settings
        .iter()
        .map(|(name, value)| format!("-c {name}={value}"))
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

fn parse_error(error: &tokio_postgres::Error) -> Error {
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    if why.contains("`sslmode`") {
        Error::TlsNotSupported
    } else if why.starts_with("invalid value for option") {
        // It names one of PostgreSQL's options, not what was written.
        Error::InvalidValue(why)
    } else {
        Error::Unreadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_host_port_and_database_and_no_password() {
        let cases = [
            (
                "postgres://u:hush@db.example/maru",
                "db.example:5432, database maru",
            ),
            (
                "postgresql://u:hu%40sh@[::1]:5433/m",
                "::1:5433, database m",
            ),
            ("postgres://u:hush@a:1,b:2/m", "a:1,b:2, database m"),
            (
                "postgres:///m?host=/run/pg&password=hush",
                "/run/pg:5432, database m",
            ),
            ("postgres://u:hush@a", "a:5432, database u"),
        ];
        for (url, place) in cases {
            let address = PostgresAddress::parse(url).unwrap();
            assert_eq!(
                address.redacted_location(),
                format!("in PostgreSQL at {place}")
            );
            assert!(!format!("{address:?}").contains("hush"), "{address:?}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_without_quoting_it() {
        let cases = [
            ("mysql://u:hush@a/m", "postgres://"),
            ("host=a password=hush", "postgres://"),
            ("postgres://u:hu@sh@a/m", "%40"),
            ("postgres://u:hush@a:port/m", "`port`"),
            ("postgres://u:hush@a/m?hat=1", "options"),
            ("postgres://u:hush@", "no host"),
            ("postgres://u:hush@a/m?sslmode=require", "TLS"),
            ("postgres://u:hush@a/m?sslmode=verify-full", "TLS"),
        ];
        for (url, expected) in cases {
            let why = PostgresAddress::parse(url).unwrap_err().to_string();
            assert!(why.contains(expected), "{url}: {why}");
            assert!(!why.contains("hu"), "{why}");
        }
    }

    #[test]
    fn later_settings_win() {
        let url = "postgres://a/m?options=-c%20statement_timeout=5";
        let address = PostgresAddress::parse(url).unwrap();
        let ours = [("TimeZone", "UTC")];
        assert_eq!(
            address.config_with_defaults(&ours).get_options(),
            Some("-c TimeZone=UTC -c statement_timeout=5")
        );
        assert_eq!(
            address.config_with_overrides(&ours).get_options(),
            Some("-c statement_timeout=5 -c TimeZone=UTC")
        );
    }
}
