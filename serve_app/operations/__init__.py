"""Operations: from a validated body to an outcome, knowing nothing of HTTP; both doors call them."""
