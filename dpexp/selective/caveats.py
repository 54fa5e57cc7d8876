"""What accounts need and what none of them covers, in the words of every statement and footnote."""

NOT_REVIEWED = "derived here, reviewed and checked numerically, not peer reviewed"
HIDDEN = "how many trials were made, and how long they took, stays hidden, this record included"
# By what the features need: a normalisation or an extractor.
NOT_COVERED = {
    "noisy_statistics": "the medians that bound the channel statistics, which were computed without privacy",
    "tokens": "the vocabulary, which was computed from the training texts without privacy",
}
