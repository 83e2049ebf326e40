-- Whose sign-in it is, so that it ends with that caller's token.
ALTER TABLE server_sign_in ADD COLUMN subject TEXT NOT NULL DEFAULT '';
