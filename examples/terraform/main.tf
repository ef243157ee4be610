variable "greeting" {
  type = string
}

resource "terraform_data" "first" {
  input = var.greeting
}

resource "terraform_data" "second" {
  input = "${terraform_data.first.output}, ${terraform_data.first.id}"
}

output "greeting" {
  value = terraform_data.second.output
}
